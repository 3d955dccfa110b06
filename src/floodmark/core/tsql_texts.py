"""T-SQL that people are shown, to read and to run themselves. Floodmark never runs it."""

from __future__ import annotations

from floodmark.core.schema import TableName


def quote(identifier: str) -> str:
    """In brackets."""
    return "[" + identifier.replace("]", "]]") + "]"


def literal(text: str) -> str:
    return "N'" + text.replace("'", "''") + "'"


def enable_table(table: TableName, *, net_changes: bool = False) -> str:
    return (
        f"EXEC sys.sp_cdc_enable_table @source_schema = {literal(table.schema)}, @source_name = {literal(table.name)},"
        f" @role_name = NULL, @supports_net_changes = {int(net_changes)};"
    )


def disable_instance(table: TableName, instance: str) -> str:
    return (
        f"EXEC sys.sp_cdc_disable_table @source_schema = {literal(table.schema)}, @source_name = {literal(table.name)},"
        f" @capture_instance = {literal(instance)};"
    )


def grant_select(schema: str, name: str, user: str) -> str:
    return f"GRANT SELECT ON {quote(schema)}.{quote(name)} TO {quote(user)};"
