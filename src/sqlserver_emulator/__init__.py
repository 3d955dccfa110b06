"""A stand-in for SQL Server that speaks its wire protocol, TDS 7.4, with change data capture.

``tds`` turns bytes into messages and back, ``server``/``connection`` own sockets and TLS, ``tsql`` interprets batches,
``engine`` stores and queries in an embedded PostgreSQL, ``cdc`` reads that server's log and fills change tables.
Imports nothing of floodmark, and floodmark nothing of it.
"""
