"""The rows of a whole table: where it is cut into chunks, the T-SQL, and the values that need care."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.capture import bracket, bracket_table
from floodmark.core.errors import ConfigError, DataQualityError, SourceUnavailableError
from floodmark.core.plan import Bound, LoadChunk, TablePlan, ValueColumn, value_columns
from floodmark.core.schema import MAX_LENGTH, SourceColumn, SourceTable
from floodmark.core.settings import TemporalPolicy
from floodmark.core.snapshot import LogEntry
from floodmark.core.types import Kind, WarehouseType
from floodmark.sources.sqlserver.driver import SourceSession, SqlServerConnection, proven_session
from floodmark.sources.sqlserver.tables import read_sql
from floodmark.sync.arrow import arrow_type
from floodmark.sync.ports import RowShape

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# National strings as the code units that the server stores, which are any sequence of 16 bits.
#
# The driver replaces half of a surrogate pair by U+FFFD, and two keys that differ in it alone would be one. So such
# columns travel as bytes, which costs the server nothing, and are decoded here. A half of a pair becomes the three
# bytes that UTF-8 would have for it: no valid text, so that the warehouse finds it (``postgres.warehouse.sink``).


_NATIONAL = {"nchar": "", "nvarchar": "", "sysname": "", "ntext": "nvarchar(max)"}
"""The types of national strings, with the type that has a conversion to bytes where they have none."""
_UNITS = np.dtype("<u2")
_Key = int | str | bytes | Decimal
_TWO_BYTES, _THREE_BYTES = 0x80, 0x800
"""The first code units that have two and three bytes in UTF-8."""


def units_expression(column: SourceColumn, value: str) -> str:
    """Return the expression for the code units of a national string as bytes, "" for a column of another type.

    value: an expression of the column's type.
    """
    if column.type_name not in _NATIONAL:
        return ""
    if readable := _NATIONAL[column.type_name]:
        value = f"CAST({value} AS {readable})"
    is_long = column.is_lob or column.max_length == MAX_LENGTH
    return f"CAST({value} AS varbinary({'max' if is_long else _bytes_of(column)}))"


def string_expression(column: SourceColumn, units: str) -> str:
    """Return the expression for the string of the units of ``units_expression``, "" for a column of another type."""
    if column.type_name not in _NATIONAL or column.is_lob:
        return ""
    return f"CAST(CAST({units} AS varbinary({_bytes_of(column)})) AS {column.declared_type})"


def units_of(column: SourceColumn, value: object) -> object:
    """Return a value of a key for ``string_expression``: bounds that an older version stored are texts."""
    return value.encode("utf-16-le") if column.type_name in _NATIONAL and isinstance(value, str) else value


def text_of(column: SourceColumn, value: _Key) -> _Key:
    """Return a value of a key, with national strings as texts."""
    if column.type_name in _NATIONAL and isinstance(value, bytes):
        return value.decode("utf-16-le", "replace")
    return value


def decode_units(batch: pa.RecordBatch, columns: Sequence[ValueColumn]) -> pa.RecordBatch:
    """Return a batch of the driver with the texts that travelled as code units.

    columns: the last columns of the batch, in order.
    """
    own = batch.num_columns - len(columns)
    for place, column in enumerate(columns, own):
        array = batch.column(place)
        is_binary = pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)
        if column.type.kind is Kind.TEXT and is_binary:
            batch = batch.set_column(place, batch.schema.names[place], decode_array(array))
    return batch


def decode_array(array: pa.Array) -> pa.Array:
    """Return values of code units as large_string."""
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    if data is None or ends[0] == ends[-1]:
        return array.view(pa.large_string())
    units = np.frombuffer(data, _UNITS, (ends[-1] - ends[0]) // 2, int(ends[0]))
    places = (ends - ends[0]) // 2
    if np.max(units) < _TWO_BYTES:
        texts = _build(units.astype(np.uint8), places)
    elif _has_half(units, places):
        texts = pa.array([_decoded(value) for value in array.to_pylist()], pa.large_binary()).view(pa.large_string())
    else:
        octets = np.frombuffer(units.tobytes().decode("utf-16-le").encode(), np.uint8)
        texts = _build(octets, _octets_before(units)[places].astype(np.int64))
    return pc.if_else(array.is_valid(), texts, None) if array.null_count else texts


def _has_half(units: npt.NDArray[np.uint16], places: npt.NDArray[np.int64]) -> bool:
    """Return whether a value has half of a surrogate pair. Two values that meet must not make a pair."""
    if not np.any((units & 0xF800) == 0xD800):
        return False
    kinds = units & 0xFC00
    lows = np.flatnonzero(kinds == 0xDC00)
    begins = places[np.searchsorted(places, lows)]
    return not np.array_equal(np.flatnonzero(kinds == 0xD800) + 1, lows) or bool(np.any(begins == lows))


def _octets_before(units: npt.NDArray[np.uint16]) -> npt.NDArray[Any]:
    """Return the number of bytes in UTF-8 before each unit, and before the end; a pair has four."""
    octets = np.ones(len(units), np.uint8)
    octets += units >= _TWO_BYTES
    octets += units >= _THREE_BYTES
    octets -= (units & 0xF800) == 0xD800
    # A sum in int32 is ten times as fast as one in int64.
    is_short = 3 * len(units) <= np.iinfo(np.int32).max
    sums = np.zeros(len(units) + 1, np.int32 if is_short else np.int64)
    np.cumsum(octets, out=sums[1:])
    return sums


def _build(octets: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(octets)]
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)


def _decoded(value: bytes | None) -> bytes | None:
    return None if value is None else value.decode("utf-16-le", "surrogatepass").encode(errors="surrogatepass")


def _bytes_of(column: SourceColumn) -> int:
    return 2 * (column.max_length or 128)  # sysname is nvarchar(128)


# --------------------------------------------------------------------------------------------------------------------
# The transport of source columns: their expressions in the SELECT list, and their Arrow types in a batch.


_ODBC_CANONICAL_STYLE = 121
"""The style of CONVERT that prints all digits of a temporal value, and the offset of a datetimeoffset."""
_TEMPORAL_TEXT_LENGTH = 34
_CLR_TYPES = frozenset({"hierarchyid", "geography", "geometry"})
_TEMPORAL_TYPES = frozenset({"time", "datetime2", "datetimeoffset"})


def select_expressions(table: SourceTable, temporal: TemporalPolicy) -> tuple[str, ...]:
    """Return the expressions of the SELECT list for the stored columns, in order. Raises as ``value_columns``."""
    return tuple(_select_expression(table, column, temporal) for column in value_columns(table, temporal))


def _select_expression(table: SourceTable, column: ValueColumn, temporal: TemporalPolicy) -> str:
    name, type_name = bracket(column.name), table.column(column.name).type_name
    if type_name in _TEMPORAL_TYPES and column.type.kind is Kind.TEXT:
        applies_offset = type_name == "datetimeoffset" and temporal is TemporalPolicy.TRUNCATE
        # In a key: two offsets of one moment are one key at the source.
        value = f"SWITCHOFFSET({name}, '+00:00')" if applies_offset else name
        return f"CONVERT(varchar({_TEMPORAL_TEXT_LENGTH}), {value}, {_ODBC_CANONICAL_STYLE}) AS {name}"
    if type_name in _CLR_TYPES:
        return f"CONVERT(varbinary(max), {name}) AS {name}"
    units = units_expression(table.column(column.name), name)
    return f"{units} AS {name}" if units else name


def to_transport(array: pa.Array, kind: WarehouseType, target: pa.DataType) -> pa.Array:
    """Return a column of the driver in the type of a batch. Fractions finer than a microsecond are cut off."""
    if array.type == target:
        return array
    if kind.kind is Kind.TIME:
        return array.cast(pa.time64("us"), safe=False).cast(target)
    # Only temporal casts may lose digits; all others must fail rather than change a value.
    return array.cast(target, safe=not pa.types.is_temporal(target))


# --------------------------------------------------------------------------------------------------------------------
# The T-SQL that reads the rows of a table itself: one SELECT per chunk, with the same text for every chunk.
#
# Isolation is READ COMMITTED: uncommitted rows could be rolled back, and no change would ever remove them again. A
# chunk is read by one worker of the server (MAXDOP 1): how many are read at once is configured.


_ROW_NUMBER = "__$seqval"
"""The alias of a number that is selected with the columns of a key: no column of a tracked table can have this name."""

_TEXT_STYLES = {
    **dict.fromkeys(("time", "datetime2", "datetimeoffset", "datetime", "smalldatetime"), 121),
    **dict.fromkeys(("float", "real"), 3),
}
"""The CONVERT styles for bounds that travel as text without loss: Python has fewer digits than the server."""

ONE_WORKER = " OPTION (MAXDOP 1)"


def select_rows(plan: TablePlan, has_after: bool, has_to: bool) -> str:
    """Return the SELECT of a chunk of the table. Parameters: those of ``key_after``, then those of ``key_up_to``."""
    table = plan.feed.table
    conditions = ([key_after(table)] if has_after else []) + ([key_up_to(table)] if has_to else [])
    conditions += _where(plan)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = ", ".join(select_expressions(table, plan.settings.temporal))
    return f"SELECT {columns} FROM {bracket_table(table.name)}{where}{ONE_WORKER}"  # noqa: S608


def select_next_bound(plan: TablePlan, has_after: bool) -> str:
    """Return the SELECT of the n-th key after a bound in the server's order, in types that survive a round trip.

    Parameters: those of ``key_after``, then n - 1. It takes no locks and waits for none: a bound only divides the keys,
    so that it need not be the key of a committed row.
    """
    table = plan.feed.table
    columns = ", ".join(_bound_expression(table, name) for name in table.key)
    order = ", ".join(bracket(name) for name in table.key)
    conditions = ([key_after(table)] if has_after else []) + _where(plan)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return (
        f"SELECT {columns} FROM {bracket_table(table.name)} WITH (READUNCOMMITTED){where}"  # noqa: S608
        f" ORDER BY {order} OFFSET ? ROWS FETCH NEXT 1 ROWS ONLY{ONE_WORKER}"
    )


def nullable_key(plan: TablePlan) -> tuple[str, ...]:
    """Return the columns of the key that can be NULL, which only a declared key has."""
    table = plan.feed.table
    return tuple(name for name in table.key if table.column(name).nullable)


def count_null_keys(plan: TablePlan) -> str:
    """Return the SELECT of one row: for each column of ``nullable_key``, the number of rows where it is NULL."""
    names = [bracket(name) for name in nullable_key(plan)]
    counts = ", ".join(f"COUNT_BIG(CASE WHEN {name} IS NULL THEN 1 END)" for name in names)
    any_null = " OR ".join(f"{name} IS NULL" for name in names)
    where = " AND ".join([f"({any_null})", *_where(plan)])
    return f"SELECT {counts} FROM {bracket_table(plan.feed.table.name)} WHERE {where}"  # noqa: S608


def select_double_key(plan: TablePlan) -> str:
    """Return the SELECT of a key that several rows have, as a bound, and their number; no row where none has."""
    table = plan.feed.table
    columns = ", ".join(_bound_expression(table, name) for name in table.key)
    key = ", ".join(bracket(name) for name in table.key)
    return (
        f"SELECT TOP (1) {columns}, COUNT_BIG(*) AS [{_ROW_NUMBER}] FROM {bracket_table(table.name)}"  # noqa: S608
        f"{' WHERE '.join(['', *_where(plan)])} GROUP BY {key} HAVING COUNT_BIG(*) > 1"
    )


def count_key(plan: TablePlan) -> str:
    """Return the SELECT of the number of rows that have a key. Parameters: the bound."""
    table = plan.feed.table
    equal = [f"{bracket(name)} = {_bound_parameter(table, name)}" for name in table.key]
    where = " AND ".join([*equal, *_where(plan)])
    return f"SELECT COUNT_BIG(*) FROM {bracket_table(table.name)} WHERE {where}"  # noqa: S608


def key_after(table: SourceTable) -> str:
    """Return the condition that a key is after the bound, in the server's order. Parameters: ``bound_parameters``."""
    return _beyond(table, ">", inclusive=False)


def key_up_to(table: SourceTable) -> str:
    """Return the condition that a key is the bound or before it. Parameters: ``bound_parameters``."""
    return _beyond(table, "<", inclusive=True)


def bound_parameters(table: SourceTable, bound: Sequence[object]) -> tuple[object, ...]:
    """Return the values of a bound in the order of the parameters of ``key_after`` and ``key_up_to``."""
    bound = [units_of(table.column(name), value) for name, value in zip(table.key, bound, strict=True)]
    leading = bound[:1] if len(bound) > 1 else ()
    return (*leading, *_chained(bound))


def _chained(bound: Sequence[object]) -> tuple[object, ...]:
    return tuple(value for length in range(1, len(bound) + 1) for value in bound[:length])


def _beyond(table: SourceTable, comparison: str, *, inclusive: bool) -> str:
    """Return (a, b) > (x, y) as a chain of comparisons: T-SQL cannot compare rows.

    The server does not make one range of an index out of the chain. So a >= x comes before it, which is one.
    """
    branches = []
    for last, name in enumerate(table.key):
        equal = [f"{bracket(before)} = {_bound_parameter(table, before)}" for before in table.key[:last]]
        operator = comparison + ("=" if inclusive and last == len(table.key) - 1 else "")
        branches.append(" AND ".join([*equal, f"{bracket(name)} {operator} {_bound_parameter(table, name)}"]))
    chain = "(" + " OR ".join(f"({branch})" for branch in branches) + ")"
    if len(table.key) == 1:
        return chain
    return f"{bracket(table.key[0])} {comparison}= {_bound_parameter(table, table.key[0])} AND {chain}"


def _where(plan: TablePlan) -> list[str]:
    """Return the filter of the table, and the condition of a reload of some rows (``sqlserver.condition``).

    Each is in parentheses, and the condition of an operator on its own line.
    """
    condition = [f"(\n{plan.where}\n)"] if plan.where else []
    return [f"({filter_of(plan)})", *condition] if plan.settings.where else condition


def filter_of(plan: TablePlan) -> str:
    """Return the filter of the table in T-SQL: ``sync.filters`` has written it, from the parts of its grammar alone."""
    assert plan.settings.where is not None  # noqa: S101  (the caller has asked)
    return plan.settings.where.sql


def _bound_parameter(table: SourceTable, name: str) -> str:
    # With the type of the column: an untyped text would be compared in the order of another collation.
    column = table.column(name)
    if column.type_name in _TEXT_STYLES:
        return f"CONVERT({column.declared_type}, ?, {_TEXT_STYLES[column.type_name]})"
    declared = "binary(8)" if column.type_name in ("timestamp", "rowversion") else column.declared_type
    return string_expression(column, "?") or f"CAST(? AS {declared})"


def _bound_expression(table: SourceTable, name: str) -> str:
    # Without a name: ORDER BY the column's name means the column then, and a condition may name the table itself.
    column = table.column(name)
    style = _TEXT_STYLES.get(column.type_name)
    if style is not None:
        return f"CONVERT(varchar(34), {bracket(name)}, {style})"
    return units_expression(column, bracket(name)) or bracket(name)


# --------------------------------------------------------------------------------------------------------------------
# Queries before and after the read of a whole table: where to cut it, and whether its key is unique.
#
# The server guarantees that its own keys are unique and never NULL. A declared key must be checked in the rows.


_ATTEMPTS = 3


def read_chunk_bounds(plan: TablePlan, connected: Callable[[], AbstractContextManager[SourceSession]]) -> list[Bound]:
    """Return the keys at which the server cuts the table into chunks, in its own order.

    None for a key without an index: each chunk would be a scan of the whole table, which is read in one stream instead.

    Raises ConfigError for a key with a NULL: no comparison with a bound is true for NULL, so no chunk would have the
    row, and nothing could be merged by it. Each bound is a statement of its own. Where one fails for a moment, the
    search continues, on another connection, after the bounds that were found.
    """
    if not plan.feed.table.key:
        return []
    bounds: list[Bound] = []
    failures, checked = 0, False
    while True:
        found = len(bounds)
        try:
            with connected() as session:
                if not checked:
                    if not _has_index(session, plan):
                        return []
                    _refuse_null_keys(session, plan)
                    checked = True
                _continue_bounds(session, plan, bounds)
                return bounds
        except SourceUnavailableError as error:
            failures = 1 if len(bounds) > found else failures + 1
            if failures == _ATTEMPTS:
                raise
            _LOG.warning("%s; continuing after %s chunk bounds.", error, len(bounds))


def refuse_null_keys(plan: TablePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a whole table. Raises ConfigError after the last one where a key had a NULL."""
    names = nullable_key(plan)
    counts = dict.fromkeys(names, 0)
    for batch in batches:
        for name in names:
            counts[name] += batch.column(name).null_count
        yield batch
    _refuse_nulls(plan, counts)


def find_double_key(plan: TablePlan, session: SourceSession) -> tuple[Bound, int] | None:
    """Return a key that several rows have at the source, and their number; None where each key is unique.

    The rows are counted twice: a scan of another index may return a row twice that moves meanwhile, but hardly in both
    counts.
    """
    for *key, _ in session.fetch(select_double_key(plan)):
        bound = _portable(key)
        rows = int(session.fetch(count_key(plan), bound)[0][0])
        if rows > 1:
            return _readable(plan, bound), rows
    return None


def _readable(plan: TablePlan, bound: Bound) -> Bound:
    """Return a key for a person."""
    table = plan.feed.table
    return tuple(text_of(table.column(name), value) for name, value in zip(table.key, bound, strict=True))


def _has_index(session: SourceSession, plan: TablePlan) -> bool:
    """Return whether an index has the columns of the key first, in their order and all in one direction."""
    key = plan.feed.table.key
    columns: dict[int, list[tuple[str, bool]]] = {}
    for index, name, is_descending in session.fetch(read_sql("read_indexes"), (bracket_table(plan.feed.table.name),)):
        columns.setdefault(index, []).append((name, bool(is_descending)))
    return any(found[: len(key)] in _directions(key) for found in columns.values())


def _directions(key: Sequence[str]) -> tuple[list[tuple[str, bool]], ...]:
    return [(name, False) for name in key], [(name, True) for name in key]


def _continue_bounds(session: SourceSession, plan: TablePlan, bounds: list[Bound]) -> None:
    """Add the bounds after the last one."""
    while True:
        after = bound_parameters(plan.feed.table, bounds[-1]) if bounds else ()
        text = select_next_bound(plan, bool(bounds))
        rows = session.fetch(text, (*after, plan.settings.first_load.chunk_rows - 1))
        if not rows:
            return
        bounds.append(_portable(rows[0]))


def _refuse_null_keys(session: SourceSession, plan: TablePlan) -> None:
    names = nullable_key(plan)
    if names:
        _refuse_nulls(plan, dict(zip(names, session.fetch(count_null_keys(plan))[0], strict=True)))


def _refuse_nulls(plan: TablePlan, counts: Mapping[str, int]) -> None:
    if found := {name: rows for name, rows in counts.items() if rows}:
        counted = ", ".join(f"{name} in {rows} row{'s' if rows > 1 else ''}" for name, rows in found.items())
        raise ConfigError(
            str(plan.source),
            f"the declared key ({', '.join(plan.feed.table.key)}) is NULL: {counted}.",
            "Rows are merged by their key: declare columns that are never NULL, or fill them at the source.",
        )


def _portable(row: Sequence[object]) -> Bound:
    """Return a key that the driver binds as the same value: uuid.UUID is not bound as uniqueidentifier."""
    return tuple(value if isinstance(value, int | str | bytes | Decimal) else str(value) for value in row)


# --------------------------------------------------------------------------------------------------------------------
# Values that are too long to travel: they are refused by name.


MAX_VALUE_BYTES = (1 << 30) - (1 << 10)
"""PostgreSQL holds values below 1 GiB, and so does each message of COPY."""
MAX_ROW_BYTES = (2 << 30) - (64 << 20)
"""A row travels through Spark as one value, of less than 2 GiB."""


def refuse_long_values(
    batch: pa.RecordBatch,
    columns: Sequence[ValueColumn],
    subject: str,
    *,
    max_value_bytes: int = MAX_VALUE_BYTES,
    max_row_bytes: int = MAX_ROW_BYTES,
) -> None:
    """Raise DataQualityError, naming table and column, for a value or a row that cannot be carried.

    batch: as the driver returned it, with the LOBs among ``columns`` by name. Text has its length in UTF-8.
    """
    lobs = [column.name for column in columns if column.is_lob]
    if batch.nbytes <= max_value_bytes:
        return
    lengths = {name: pc.fill_null(pc.binary_length(batch.column(name)).cast(pa.int64()), 0) for name in lobs}
    for name, length in lengths.items():
        longest = pc.max(length).as_py()
        if longest > max_value_bytes:
            raise _too_long(subject, f"column {name} has a value of {longest} bytes", max_value_bytes)
    rows = [sum(row) for row in zip(*(length.to_pylist() for length in lengths.values()), strict=True)]
    if rows and max(rows) > max_row_bytes:
        raise _too_long(subject, f"columns {', '.join(lobs)} have {max(rows)} bytes in one row", max_row_bytes)


def split_batch(batch: pa.RecordBatch, max_bytes: int = MAX_VALUE_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield a batch, or its rows one by one where all together are too long for the 32-bit offsets of a column."""
    if batch.nbytes <= max_bytes:
        yield batch
        return
    for row in range(batch.num_rows):
        yield batch.take(pa.array([row]))  # a slice would keep the offsets


def _too_long(subject: str, found: str, limit: int) -> DataQualityError:
    return DataQualityError(
        subject,
        f"{found}; at most {limit} bytes can be carried.",
        "Shorten the value at the source, or leave the column out of the capture instance (@captured_column_list).",
    )


# --------------------------------------------------------------------------------------------------------------------
# ``SqlServerReader``: the rows of a table itself, and what each kind of source needs to read its changes.
#
# Each part is one statement. Before it, its connection proves that the copy of the database that answers has the end of
# the window: readable copies lag, and an address may lead to any of them.


BATCH_ROWS = 8192
_OWN_ARROW_TYPES = {"binary": pa.binary(), "int": pa.int32(), "moment": pa.timestamp("us")}


@dataclass(frozen=True)
class SqlServerReader(ABC):
    """``sync.ports.TableReader``, and the base of each kind's ``TableReader``."""

    plan: TablePlan
    source: SqlServerConnection
    end: LogEntry
    """The entry of the log that a copy of the database must have to be read."""

    @property
    @abstractmethod
    def shape(self) -> RowShape:
        """Return the columns of the batches."""

    @abstractmethod
    def require_end(self, session: SourceSession) -> None:
        """Raise SourceBehindError unless the copy of the database behind a session has the end of the window."""

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        text = select_rows(self.plan, chunk.after is not None, chunk.to is not None)
        table = self.plan.feed.table
        bounds = [bound_parameters(table, each) for each in (chunk.after, chunk.to) if each is not None]
        batches = self.read_text(text, tuple(value for bound in bounds for value in bound))
        return batches if bounds else refuse_null_keys(self.plan, batches)

    def read_chunk_bounds(self) -> Sequence[Bound]:
        return read_chunk_bounds(self.plan, self.connected)

    def find_double_key(self) -> tuple[Bound, int] | None:
        with self.connected() as session:
            return find_double_key(self.plan, session)

    def connected(self) -> AbstractContextManager[SourceSession]:
        """Open a session with a copy of the database that has the end of the window."""
        return proven_session(self.source, str(self.plan.source), self.require_end)

    def read_text(self, text: str, parameters: tuple[object, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement as batches of the reader's shape."""
        with self.connected() as session:
            yield from self.read_over(session, text, parameters)

    def read_over(self, session: SourceSession, text: str, parameters: tuple[object, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement as batches of the reader's shape."""
        shape, subject = self.shape, str(self.plan.source)
        schema = arrow_schema(shape)
        for found in session.read_batches(subject, text, parameters, BATCH_ROWS, batch_bytes(self.plan)):
            batch = decode_units(found, shape.values)
            refuse_long_values(batch, shape.values, subject)
            for piece in split_batch(batch):
                yield cast_batch(piece, schema, shape.values)


def batch_bytes(plan: TablePlan) -> int:
    """Return the bytes at which a batch ends; 0 for rows without LOBs, which have a limited size."""
    return plan.settings.lob_batch if any(column.is_lob for column in plan.feed.table.stored_columns) else 0


def arrow_schema(shape: RowShape) -> pa.Schema:
    """Return the schema of the batches of a shape."""
    own = [(name, _OWN_ARROW_TYPES[kind]) for name, kind in shape.own]
    return pa.schema([*own, *((column.name, arrow_type(column.type)) for column in shape.values)])


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema, columns: Sequence[ValueColumn]) -> pa.RecordBatch:
    """Cast to the declared types: the driver's are wider (large_string, uint8, time64[ns]), and Spark refuses them."""
    own = len(schema) - len(columns)
    arrays = [batch.column(i).cast(schema.field(i).type) for i in range(own)]
    arrays += [
        to_transport(batch.column(own + i), column.type, schema.field(own + i).type) for i, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
