"""T-SQL for people to read and to run themselves. Floodmark only runs what the operator has approved."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from floodmark.core.position import Position
from floodmark.core.schema import TableName

MAX_INSTANCE_LENGTH = 100
"""In characters (docs/reference/sqlserver_cdc.md, "Enabling a table")."""


def bracket(identifier: str) -> str:
    """Return an identifier in brackets."""
    return "[" + identifier.replace("]", "]]") + "]"


def bracket_table(name: TableName) -> str:
    """Return the two-part name in brackets."""
    return f"{bracket(name.schema)}.{bracket(name.name)}"


def literal(text: str) -> str:
    """Return a Unicode string literal."""
    return "N'" + text.replace("'", "''") + "'"


def enable_table(table: TableName, *, net_changes: bool = False, partition_switch: bool = True) -> str:
    """Return the statement that creates a capture instance.

    partition_switch: whether partitions may be switched in and out, which is not captured; the server's default.
    """
    switching = "" if partition_switch else ", @allow_partition_switch = 0"
    name = f"{table.schema}_{table.name}"
    named = f" @capture_instance = {literal(_shortened(name))}," if len(name) > MAX_INSTANCE_LENGTH else ""
    return (
        f"EXEC sys.sp_cdc_enable_table @source_schema = {literal(table.schema)}, @source_name = {literal(table.name)},"
        f"{named} @role_name = NULL, @supports_net_changes = {int(net_changes)}{switching};"
    )


def _shortened(name: str) -> str:
    """Return a name for an instance whose default name would be too long: it ends in a digest, and stays distinct."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_INSTANCE_LENGTH - 1 - len(digest)]}_{digest}"


def disable_instance(table: TableName, instance: str) -> str:
    """Return the statement that drops a capture instance."""
    return (
        f"EXEC sys.sp_cdc_disable_table @source_schema = {literal(table.schema)}, @source_name = {literal(table.name)},"
        f" @capture_instance = {literal(instance)};"
    )


EVERY_ROW = "1 = 1"
"""A condition that is true for every row."""
TOUCHED = "EXISTS ("
"""The beginning of a condition of ``touched_rows``."""


def filled_rows(columns: Sequence[str]) -> str:
    """Return the condition for the rows that have a value in one of the columns."""
    return " OR ".join(f"{bracket(column)} IS NOT NULL" for column in columns)


def touched_rows(table: TableName, key: Sequence[str], instance: str, since: Position | None) -> str:
    """Return the condition for the rows with a change in a capture instance.

    since: the first LSN that counts; None: all changes of the instance.
    """
    # Inside the subquery, the alias would hide a table of the same name.
    alias = "c" if table.name.casefold() != "c" else "d"
    conditions = [f"{alias}.{bracket(column)} = {bracket(table.name)}.{bracket(column)}" for column in key]
    if since is not None:
        conditions.insert(0, f"{alias}.[__$start_lsn] >= {since}")
    changes = f"[cdc].{bracket(instance + '_CT')} AS {alias}"
    return f"{TOUCHED}SELECT 1 FROM {changes} WHERE {' AND '.join(conditions)})"  # noqa: S608


def grant_select(schema: str, name: str, user: str) -> str:
    """Return the statement that grants SELECT on an object."""
    return f"GRANT SELECT ON {bracket(schema)}.{bracket(name)} TO {bracket(user)};"


def make_heartbeat(table: TableName) -> str:
    """Return the statements that create and track the table whose changes prove that capture works."""
    name = bracket_table(table)
    return (
        f"CREATE TABLE {name} (id tinyint NOT NULL PRIMARY KEY, beat bigint NOT NULL, beaten_at datetime NOT NULL,"
        f" waiting_since datetime NOT NULL); {insert_heartbeat(table)} {enable_table(table)}"
    )


def insert_heartbeat(table: TableName) -> str:
    """Return the statement that inserts the only row of the heartbeat table."""
    name = bracket_table(table)
    return f"INSERT INTO {name} (id, beat, beaten_at, waiting_since) VALUES (1, 0, GETDATE(), GETDATE());"  # noqa: S608
