"""Values and rows that a source hides from the login that reads it, both without any error: masks and filters.

Change tables have neither masks nor filters (docs/reference/sqlserver_cdc.md, "Masks and filters"), so that loads and
windows of such a table would not agree.
"""

from __future__ import annotations

from floodmark.core.errors import SourcePermissionError
from floodmark.core.schema import TableName
from floodmark.core.source.scripts import bracket_table
from floodmark.core.source.snapshot import TableSnapshot


def list_masked(table_snapshot: TableSnapshot) -> tuple[str, ...]:
    """Return the captured columns that the login reads through a mask."""
    instance = table_snapshot.instance
    captured = {column.name for column in instance.table.columns} if instance else set()
    return tuple(name for name in table_snapshot.masked if name in captured)


def grant_unmask(table: TableName, grantee: str) -> str:
    """Return the statements that let a login read the real values: since SQL Server 2022, and before it."""
    securable = bracket_table(table)
    return f"GRANT UNMASK ON {securable} TO {grantee}; or, before SQL Server 2022: GRANT UNMASK TO {grantee};"


def check_readers_view(table_snapshot: TableSnapshot, *, accepts_filters: bool) -> None:
    """Raise SourcePermissionError for a table that the login does not see as it is."""
    table = table_snapshot.table
    masked = list_masked(table_snapshot)
    if masked:
        raise SourcePermissionError(
            str(table),
            f"the login reads masks in place of the values of {', '.join(masked)}.",
            f"Ask the DBA: {grant_unmask(table, 'the login')} Or leave them out of a capture instance.",
        )
    if table_snapshot.filters and not accepts_filters:
        raise SourcePermissionError(
            str(table),
            f"security policy {', '.join(table_snapshot.filters)} filters its rows, so that loads may miss some.",
            "Ask the DBA to let the login see all rows in the policy's predicate. Where the rows that it may see are"
            " enough, set security_filtered: accept for the table.",
        )
