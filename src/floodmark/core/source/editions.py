"""The editions of SQL Server that behave differently."""

from __future__ import annotations

AZURE_SQL_DATABASE = frozenset({5, 12})
"""SERVERPROPERTY('EngineEdition') of Azure SQL Database and of SQL database in Fabric: neither has an Agent."""


AZURE = AZURE_SQL_DATABASE | {8}
"""The same with Azure SQL Managed Instance, which has an Agent."""
