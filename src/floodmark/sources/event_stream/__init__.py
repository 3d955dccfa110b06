"""Change event streaming of SQL Server 2025: CloudEvents on a topic (docs/reference/event_stream.md)."""
