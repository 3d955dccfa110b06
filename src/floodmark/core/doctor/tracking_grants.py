"""The minimum rights of a login at a source with change tracking, as a script for its DBA."""

from __future__ import annotations

from collections.abc import Iterable

from floodmark.core.doctor.grants import create_user
from floodmark.core.schema import TableName
from floodmark.core.source.scripts import bracket, bracket_table, grant_select


def build_tracking_grants(database: str, login: str, tables: Iterable[TableName]) -> str:
    """Return the script in T-SQL, which may be run repeatedly."""
    lines = [
        f"-- All rights that Floodmark needs with login {login}. To be run by the DBA.",
        f"USE {bracket(database)};",
        create_user(login),
        *(grant_tracking(table, login) for table in sorted(set(tables))),
        "-- To see commit times: lag, headroom, and whether the database was restored.",
        f"GRANT VIEW DATABASE STATE TO {bracket(login)};",
    ]
    return "\n".join(lines) + "\n"


def grant_tracking(table: TableName, user: str) -> str:
    """Return the statements that let a login read a table and its changes."""
    securable = bracket_table(table)
    return (
        f"{grant_select(table.schema, table.name, user)} GRANT VIEW CHANGE TRACKING ON {securable} TO {bracket(user)};"
    )
