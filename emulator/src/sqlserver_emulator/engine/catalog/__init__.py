"""The catalog of T-SQL objects as sessions see it, and the T-SQL types of results."""
