"""The source of changes: replication slots of PostgreSQL, and the messages that are read from them."""
