"""Change event streaming of SQL Server 2025: changes of rows become messages (docs/reference/event_stream.md)."""
