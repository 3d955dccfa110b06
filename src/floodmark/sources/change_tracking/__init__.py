"""SQL Server Change Tracking as a source (docs/reference/change_tracking.md)."""
