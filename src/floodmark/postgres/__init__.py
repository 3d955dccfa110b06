"""PostgreSQL, whole: sessions, the warehouse adapter, the ledger, and their SQL as package data."""
