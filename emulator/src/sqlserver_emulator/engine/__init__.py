"""Storage and queries: the embedded PostgreSQL, the catalog of T-SQL objects, the translation of T-SQL statements."""
