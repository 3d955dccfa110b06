"""The ledger in PostgreSQL: watermarks, windows, drift events, alerts, switches."""
