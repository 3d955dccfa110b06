"""DDL: T-SQL's CREATE, ALTER, DROP, GRANT… to PostgreSQL and the emulator's catalog.

sqlglot reads too little of T-SQL's DDL (PRIMARY KEY CLUSTERED, ROWGUIDCOL, WITH NOCHECK, most kinds of CREATE), so DDL
is read here from the tokens of ``syntax.lexer``; the expressions inside it (defaults, checks, computed columns, views)
are the translator's.
"""
