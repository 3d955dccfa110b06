"""Talking to SQL Server: control queries, read statements, error numbers, type mapping."""
