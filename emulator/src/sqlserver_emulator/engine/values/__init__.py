"""Values between Python, T-SQL and PostgreSQL: bound, converted, read, and written for COPY."""
