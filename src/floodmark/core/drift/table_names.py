"""One table, however pipelines spell it: ``dbo.Orders`` and ``DBO.orders`` are the same table on most servers.

Whether they are is the collation's to say, which takes notice of case or not. It is never asked: what the server calls
the table that it found by a name tells, as it prefers the exact name to one that differs in case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from floodmark.core.drift.shapes import TableShape
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import TableSnapshot


def known_as(table_snapshot: TableSnapshot, known: Iterable[tuple[TableName, TableShape]]) -> TableName:
    """The name under which the drift of a table is kept. known: what is kept, by such a name.

    It stays as it is once there is something under it. Of a table that the server does not have any more, all names
    that differ in case alone are gone: it would else have been found by one of them.
    """
    instance, called = table_snapshot.instance, table_snapshot.server_name
    found = {
        name for name, shape in known
        if name.folded == table_snapshot.table.folded
        and (called in (None, shape.name) or (instance is not None and instance.identity == shape.identity))
    }  # fmt: skip
    for name in (called, table_snapshot.table if called is None else None):
        if name in found:
            return name
    return min(found, default=called or table_snapshot.table)


def is_named(name: TableName, table: TableName, called: TableName, others: Collection[TableName]) -> bool:
    """Whether a pipeline that says ``name`` means the table. called: by the server. others: its tables that are
    captured, by the names that it has for them."""
    return name in (table, called) or (name.folded == table.folded and name not in others)
