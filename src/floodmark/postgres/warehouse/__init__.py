"""The warehouse in PostgreSQL: targets, staging, gate, merge and comparison."""
