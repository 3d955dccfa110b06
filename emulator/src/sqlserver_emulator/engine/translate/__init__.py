"""T-SQL statement text to PostgreSQL: parse with sqlglot, resolve names, rewrite. No I/O but catalog lookups."""
