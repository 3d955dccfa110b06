"""The name of a table's change tracking, which changes when its history is lost."""

from __future__ import annotations

from floodmark.core.schema import TableName


def feed_name(table: TableName, begin_version: int) -> str:
    """Return the name. TRUNCATE TABLE, and switching the tracking off and on, change begin_version."""
    return f"{table}@{begin_version}"
