"""Modules of a database, such as procedures, that truncate tables."""

from __future__ import annotations

from collections.abc import Iterable

from floodmark.core.doctor.hazards import find_truncated
from floodmark.core.schema import TableName
from floodmark.sources.sqlserver.tables import Row


def list_truncating(modules: Iterable[Row]) -> dict[TableName, tuple[str, ...]]:
    """Return the modules that truncate a table, by table. modules: their schema, name and definition."""
    found: dict[TableName, tuple[str, ...]] = {}
    for schema, name, definition in modules:
        for table in find_truncated(definition or "", schema):
            found[table] = (*found.get(table, ()), str(TableName(schema, name)))
    return found
