"""All that is specific to PostgreSQL: sessions, the warehouse adapter, the ledger, and their SQL as package data."""
