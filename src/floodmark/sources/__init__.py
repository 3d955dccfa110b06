"""The sources of changes: one package per kind of source, and one with what the SQL Server kinds share."""
