"""The name of a table's change tracking, which changes when its history is lost."""

from __future__ import annotations

from floodmark.core.schema import TableName


def feed_name(table: TableName, begin_version: int) -> str:
    """Return the name. TRUNCATE TABLE, and switching the tracking off and on, set begin_version to the current version.

    Where no version was given since the tracking began, it stays the same: the side table is another one.
    """
    return f"{table}@{begin_version}"
