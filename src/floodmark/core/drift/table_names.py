"""One table under several spellings: ``dbo.Orders`` and ``DBO.orders`` are the same table on most servers.

Whether they are depends on the collation, which is never asked for. The name that the server gives to the table it
found by a name is enough: it prefers the exact name to one that differs in case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from floodmark.core.drift.shapes import TableShape
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import TableSnapshot


def known_as(table_snapshot: TableSnapshot, known: Iterable[tuple[TableName, TableShape]]) -> TableName:
    """Return the name under which the drift of a table is stored.

    known: the stored shapes, by such a name. The name does not change once there is a shape under it. Where the server
    no longer has the table, all names that differ in case alone are gone: one of them would otherwise have found it.
    """
    instance, called = table_snapshot.instance, table_snapshot.server_name
    found = {
        name
        for name, shape in known
        if name.folded == table_snapshot.table.folded
        and (called in (None, shape.name) or (instance is not None and instance.identity == shape.identity))
    }
    for name in (called, table_snapshot.table if called is None else None):
        if name in found:
            return name
    return min(found, default=called or table_snapshot.table)


def is_named(name: TableName, table: TableName, called: TableName, others: Collection[TableName]) -> bool:
    """Return whether a pipeline that configures ``name`` means the table.

    called: the server's name of the table. others: its tracked tables, by the server's names.
    """
    return name in (table, called) or (name.folded == table.folded and name not in others)
