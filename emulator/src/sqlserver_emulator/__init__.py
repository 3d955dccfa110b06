"""A stand-in for SQL Server that speaks its wire protocol, TDS 7.4, with change data capture.

``server`` owns sockets and TLS, ``tds`` turns bytes into messages and back, ``tsql`` interprets the batches that
``syntax`` reads, ``engine`` stores and queries in an embedded PostgreSQL, ``cdc`` reads that server's log and fills
change tables, ``control`` drives all of it from outside, and ``assembly`` puts it together.
Imports nothing of floodmark, and floodmark nothing of it.
"""
