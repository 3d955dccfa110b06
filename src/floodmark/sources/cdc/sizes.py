"""The sizes of the change tables, read over the caller's connection."""

from __future__ import annotations

from floodmark.core.errors import CdcNotEnabledError, SourcePermissionError
from floodmark.core.lsn import read_lsn
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.upkeep.change_table import ChangeTableSize
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.sql_files import read_sql

_HIDDEN = (None, None, None, None)


def read_sizes(session: SourceSession) -> tuple[ChangeTableSize, ...]:
    """Return the sizes for every capture instance that the login may see; none where CDC is not enabled."""
    try:
        sets = session.fetch_sets(read_sql("read_sizes"))
    except (CdcNotEnabledError, SourcePermissionError):
        return ()
    instances, change_tables = sets or ((), ())
    found = {row[0]: row for row in change_tables}
    sizes = []
    for schema, table, instance, object_id, *_ in instances:
        _, low_end, rows, size_bytes = found.get(object_id, _HIDDEN)
        lsn = read_lsn(low_end)
        sizes.append(
            ChangeTableSize(
                instance,
                TableName(schema, table),
                _whole(rows),
                _whole(size_bytes),
                lsn if isinstance(lsn, Position) else None,
            )
        )
    return tuple(sizes)


def _whole(number: object) -> int | None:
    return None if number is None else int(str(number))
