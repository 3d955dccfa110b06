"""The tables of a fleet: the columns that its devices have together, their types, their rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from compact_tracking import TrackingKeyType, guard
from floodmark.core.errors import ConfigError
from floodmark.core.plan import value_columns
from floodmark.core.position import Position
from floodmark.core.schema import EXACT_COLLATION, Operation, SourceColumn, SourceTable, TableName
from floodmark.core.settings import Filter, TemporalPolicy
from floodmark.sync.arrow import arrow_type
from floodmark.sync.filters import compile_filter

# --------------------------------------------------------------------------------------------------------------------
# The types of columns in SQLite files, as the source's types that Floodmark knows, and the conversion of values.
#
# SQLite does not enforce declared types: a value that does not fit its column's type is an error, never another value.


_DECLARED = re.compile(r"\s*([a-z_ ]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?(?:\s+rowguidcol)?\s*", re.IGNORECASE)
_MOST_DIGITS = 38
_EXACT = Context(prec=_MOST_DIGITS + 1)
_NAMED = {
    **dict.fromkeys(("bit", "bool", "boolean"), "bit"),
    **dict.fromkeys(("uniqueidentifier", "guid", "uuid"), "uniqueidentifier"),
    **dict.fromkeys(("datetime", "datetime2", "smalldatetime", "timestamp"), "datetime2"),
    "date": "date",
    "rowversion": "bigint",
}
_AFFINITIES = (
    # Whatever the name says, SQLite stores 64 bits.
    ("int", "bigint"),
    ("real", "float"),
    ("floa", "float"),
    ("doub", "float"),
    ("blob", "varbinary"),
    ("binary", "varbinary"),
    ("image", "varbinary"),
)
"""The part of a declared type that decides, and the type."""
_DECIMALS = {"decimal", "numeric", "dec"}
_MONEY = (19, 4)


class ValueRefusedError(Exception):
    """A value that does not fit its column's type. The text names no value."""


def source_column(name: str, declared: str, ordinal: int, *, nullable: bool) -> SourceColumn:
    """Return a column of a file. A type that SQLite gives no meaning is text."""
    match = _DECLARED.fullmatch(declared)
    base = " ".join(match[1].lower().split()) if match else declared.lower()
    precision, scale = (int(match[2] or 0), int(match[3] or 0)) if match else (0, 0)
    if base == "money":
        precision, scale = _MONEY
    if base in _DECIMALS or base == "money":
        # Without digits, SQLite stores any number.
        kind = "decimal" if 0 < precision <= _MOST_DIGITS else "nvarchar"
        return SourceColumn(
            name, kind, ordinal, precision=precision, scale=scale, nullable=nullable, collation=EXACT_COLLATION
        )
    kind = _type_name(base)
    scale = 6 if kind == "datetime2" else 0
    return SourceColumn(name, kind, ordinal, scale=scale, nullable=nullable, collation=EXACT_COLLATION)


def _type_name(base: str) -> str:
    """Return the name of a type. Beyond names of SQL Server's types, the rules of SQLite's affinity apply."""
    if base in _NAMED:
        return _NAMED[base]
    return next((kind for part, kind in _AFFINITIES if part in base), "nvarchar")


def converter(column: SourceColumn) -> Callable[[Any], Any]:
    """Return the function that makes of a stored value the one of a batch. It raises ValueRefusedError."""
    convert = _CONVERTERS[column.type_name]
    if column.type_name == "decimal":
        quantum = Decimal(1).scaleb(-column.scale)

        def to_decimal(value: Any) -> Decimal:
            return _decimal(value, quantum, column.precision)

        convert = to_decimal

    def checked(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (ValueError, TypeError, InvalidOperation, UnicodeError):
            stored = type(value).__name__
            raise ValueRefusedError(
                f"column {column.name} has a value (stored as {stored}) that is no {column.declared_type}"
            ) from None

    return checked


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _bit(value: Any) -> bool:
    if value not in (0, 1) or type(value) is not int:
        raise ValueError
    return bool(value)


def _float(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError
    return float(value)


def _decimal(value: Any, quantum: Decimal, precision: int) -> Decimal:
    if type(value) not in (int, float, str):
        raise TypeError
    # A number that SQLite stores as binary floating point is what its shortest text says.
    found = Decimal(str(value))
    exact = found.quantize(quantum, context=_EXACT)
    if exact != found or len(exact.as_tuple().digits) > precision:
        raise ValueError
    return exact


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise TypeError
    text = str(value)
    text.encode()  # bytes that are no UTF-8 arrive as lone surrogates
    return text


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, str)):
        raise TypeError
    return value.encode() if isinstance(value, str) else value


def _guid(value: Any) -> str:
    return str(UUID(bytes_le=value) if isinstance(value, bytes) else UUID(value))


def _time(value: Any) -> datetime:
    found = datetime.fromisoformat(value)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _date(value: Any) -> date:
    return date.fromisoformat(value)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "bigint": _integer,
    "bit": _bit,
    "float": _float,
    "decimal": _text,
    "nvarchar": _text,
    "varbinary": _bytes,
    "uniqueidentifier": _guid,
    "datetime2": _time,
    "date": _date,
}


# --------------------------------------------------------------------------------------------------------------------
# The tables of a fleet: the columns that its devices have, together.
#
# Devices are updated one after the other, so that some have columns that others lack. The table has the columns of all
# of them, in the order in which they are found; a device that lacks one has NULL there. The first device by name that
# has a column decides its type.


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
    columns = [
        source_column(column, kind, ordinal, nullable=column not in key)
        for ordinal, (column, kind) in enumerate(declared.values(), 2)
    ]
    return SourceTable(name, (_device_column(), *columns), (DEVICE_COLUMN, *key))


def _device_column() -> SourceColumn:
    return SourceColumn(DEVICE_COLUMN, "nvarchar", 1, nullable=False, collation=EXACT_COLLATION)


def table_name(name: TableName) -> str:
    """Return the name of a table inside a file. Raises ConfigError for a schema that files do not have."""
    if name.schema.lower() != _SCHEMA:
        raise ConfigError(
            str(name), f"the schema of a table in a file is {_SCHEMA}.", f"Write source: {_SCHEMA}.{name.name}."
        )
    return name.name


# --------------------------------------------------------------------------------------------------------------------
# The filter of a table over the rows of a device, in the task that reads them.


Passes = Callable[[tuple[Any, ...]], bool]
"""Returns whether a row passes the filter. It raises ValueRefusedError."""


def filter_rows(where: Filter, device: str, described: DeviceTable, names: Sequence[str]) -> Passes:
    """Return the function that says whether a row of a device passes. names: the columns of the rows.

    Columns have the types that the device declares; one that it lacks is NULL. Raises FilterError.
    """
    declared = {name.lower(): kind for name, kind in described.columns}
    places = {name.lower(): place for place, name in enumerate(names)}
    wanted = {each.name for each in where.columns} - {DEVICE_COLUMN}
    typed = {
        name: source_column(name, declared[name.lower()], 0, nullable=True)
        for name in wanted
        if name.lower() in declared and name.lower() in places
    }
    read = [(name, places[name.lower()], converter(column)) for name, column in typed.items()]
    test = compile_filter(where, typed | {DEVICE_COLUMN: _device_column()})

    def passes(row: tuple[Any, ...]) -> bool:
        return test({name: convert(row[place]) for name, place, convert in read} | {DEVICE_COLUMN: device})

    return passes


# --------------------------------------------------------------------------------------------------------------------
# Rows of a device as Arrow batches, in the shape of the table of the whole fleet.


POSITION = "__position"
OPERATION = "__operation"
MASK = "__mask"
COMMITTED_AT = "__committed_at"
OWN_COLUMNS = ((POSITION, "binary"), (OPERATION, "int"), (MASK, "binary"))
_MOMENT = pa.timestamp("us")
_OWN_FIELDS = [pa.field(POSITION, pa.binary()), pa.field(OPERATION, pa.int32()), pa.field(MASK, pa.binary())]
BATCH_ROWS = 8192

Rows = Sequence[tuple[Any, ...]]


class RowBatches:
    """A builder of the batches of one table."""

    def __init__(
        self, table: SourceTable, temporal: TemporalPolicy, at: Position | None, read_at: datetime | None = None
    ) -> None:
        """Take the position of the rows; None for rows without columns of a change.

        read_at: the time of the read in UTC, for tables that keep it.
        """
        self._at = at
        self._read_at = read_at
        self._table = table
        self._values = value_columns(table, temporal)
        self._convert = {column.name: converter(column) for column in table.stored_columns}
        fields = [pa.field(column.name, arrow_type(column.type)) for column in self._values]
        own = [*(_OWN_FIELDS if at else []), *([pa.field(COMMITTED_AT, _MOMENT)] if read_at else [])]
        self._schema = pa.schema([*own, *fields])

    def build(self, device: str, names: Sequence[str], rows: Rows, operation: int) -> Iterator[pa.RecordBatch]:
        """Yield rows of a device that have values in the columns of these names, and NULL in the others.

        Raises ValueRefusedError for a value that does not fit its column.
        """
        places = {name.lower(): place for place, name in enumerate(names)}
        for first in range(0, len(rows), BATCH_ROWS):
            yield self._batch(device, places, rows[first : first + BATCH_ROWS], operation)

    @cached_property
    def empty(self) -> pa.RecordBatch:
        """A batch without rows."""
        return pa.RecordBatch.from_pylist([], schema=self._schema)

    def _batch(self, device: str, places: dict[str, int], rows: Rows, operation: int) -> pa.RecordBatch:
        arrays: list[pa.Array] = []
        if self._at:
            arrays = [
                pa.array([self._at.value] * len(rows), pa.binary()),
                pa.array([operation] * len(rows), pa.int32()),
                pa.nulls(len(rows), pa.binary()),
            ]
        if self._read_at:
            # A row that was read with the whole device is no change in a log, and has no time there.
            at = None if operation == Operation.LOADED else self._read_at
            arrays.append(pa.array([at] * len(rows), _MOMENT))
        for column in self._values:
            kind, place = arrow_type(column.type), places.get(column.name.lower())
            if column.name == DEVICE_COLUMN:
                arrays.append(pa.array([device] * len(rows), kind))
            elif place is None:
                arrays.append(pa.nulls(len(rows), kind))
            else:
                convert = self._convert[column.name]
                arrays.append(pa.array([convert(row[place]) for row in rows], kind))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
