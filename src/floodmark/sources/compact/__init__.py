"""Edge databases: SQLite files, one per device, tracked by ``compact_tracking`` (docs/reference/edge.md)."""
