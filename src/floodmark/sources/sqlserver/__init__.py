"""SQL Server, whatever the kind of source: connections, errors by number, names in T-SQL."""
