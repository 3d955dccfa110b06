"""The tables of a fleet: the columns that its devices have, together.

Devices are updated one after the other, so that some have columns that others lack. The table has the columns of all
of them, in the order in which they are found; a device that lacks one has NULL there. The first device by name that has
a column decides its type.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from compact_tracking import TrackingKeyType, guard
from floodmark.core.errors import ConfigError
from floodmark.core.schema import EXACT_COLLATION, SourceColumn, SourceTable, TableName
from floodmark.sources.compact.types import source_column

DEVICE_COLUMN = "__device"
_SCHEMA = "main"
_OWN = ("__sysInsertTxBsn", "__sysChangeTxBsn", "__sysTrackingContext")
_TRACKED = "SELECT name, key_type FROM main.__ct_tables"
_HAS_TRACKING = """SELECT 1 FROM main.sqlite_master
    WHERE type = 'table' AND name = '__ct_tables' AND sql LIKE 'CREATE TABLE%'"""
"""Only a table: a view is SQL of the file's own, which may never end."""
_COLUMNS = "SELECT name, type, pk, \"notnull\" FROM pragma_table_xinfo(?, 'main') ORDER BY cid"


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """A tracked table in one device's file."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Name and declared type of each."""
    key: tuple[str, ...]


@contextmanager
def open_file(file: Path, *, is_shipped: bool) -> Iterator[sqlite3.Connection]:
    """Open a device's file for reading, with limits (``compact_tracking.guard``). Raises sqlite3.Error."""
    mode = "mode=ro&immutable=1" if is_shipped else "mode=ro"
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?{mode}", uri=True, timeout=1)) as connection:
        guard(connection, file)
        yield connection


def read_device_tables(file: Path, names: Iterable[str], *, is_shipped: bool) -> dict[str, DeviceTable]:
    """Return the tracked tables of a file among those of the names, by the name in lower case. Raises sqlite3.Error."""
    with open_file(file, is_shipped=is_shipped) as connection:
        return describe_tables(connection, names)


def describe_tables(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, DeviceTable]:
    """Return as ``read_device_tables`` what an open file, or a copy of one, has."""
    wanted = {name.lower() for name in names}
    if not connection.execute(_HAS_TRACKING).fetchone():
        return {}
    tracked = {str(name).lower(): (name, kind) for name, kind in connection.execute(_TRACKED)}
    return {
        folded: _describe(name, kind, connection.execute(_COLUMNS, (name,)).fetchall())
        for folded, (name, kind) in tracked.items()
        if folded in wanted
    }


def _describe(name: str, kind: int, rows: Sequence[tuple[str, str, int, int]]) -> DeviceTable:
    columns = [row for row in rows if row[0] not in _OWN]
    if kind == TrackingKeyType.GUID:
        key = [column for column, declared, _, _ in columns if "rowguidcol" in declared.lower().split()]
    else:
        key = [row[0] for row in sorted((row for row in columns if row[2]), key=lambda row: row[2])]
    return DeviceTable(name, tuple((column, declared) for column, declared, _, _ in columns), tuple(key))


def has_own_column(table: DeviceTable) -> bool:
    """Return whether a table has a column with the name of Floodmark's own. The load leaves its device out."""
    return any(column.lower() == DEVICE_COLUMN for column, _ in table.columns)


def join_tables(name: TableName, found: Sequence[DeviceTable]) -> SourceTable:
    """Return the table of a fleet, without devices that ``has_own_column``. Raises ConfigError if all have one."""
    found = [table for table in found if not has_own_column(table)]
    if not found:
        raise ConfigError(str(name), f"it has a column {DEVICE_COLUMN}, the name of the warehouse's own column.")
    declared: dict[str, tuple[str, str]] = {}
    for table in found:
        for column, kind in table.columns:
            declared.setdefault(column.lower(), (column, kind))
    key = [declared[column.lower()][0] for column in found[0].key]
    device = SourceColumn(DEVICE_COLUMN, "nvarchar", 1, nullable=False, collation=EXACT_COLLATION)
    columns = [
        source_column(column, kind, ordinal, nullable=column not in key)
        for ordinal, (column, kind) in enumerate(declared.values(), 2)
    ]
    return SourceTable(name, (device, *columns), (DEVICE_COLUMN, *key))


def table_name(name: TableName) -> str:
    """Return the name of a table inside a file. Raises ConfigError for a schema that files do not have."""
    if name.schema.lower() != _SCHEMA:
        raise ConfigError(
            str(name), f"the schema of a table in a file is {_SCHEMA}.", f"Write source: {_SCHEMA}.{name.name}."
        )
    return name.name
