"""Large results as Arrow: a plain SELECT read by ADBC (binary COPY) on a second connection of the session.

Measured on two busy cores, 8 mixed columns: 800,000 rows/s by ADBC, 600,000 by COPY as CSV through pyarrow, 550,000 as
Python tuples, which the wire then encodes ten times slower than Arrow. Small results do not come here: the planner's
estimate decides, and a result that turns out larger than estimated is started again here, before a row was given out.

Leaves to ``session``: whether another connection would see the same rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import adbc_driver_manager
import adbc_driver_postgresql
import numpy as np
import pyarrow as pa
from adbc_driver_manager._reader import AdbcRecordBatchReader

from sqlserver_emulator.engine.connection.arrow_database import ArrowDatabase
from sqlserver_emulator.engine.connection.pipeline import StatementFailedError
from sqlserver_emulator.engine.names import quote_literal
from sqlserver_emulator.engine.values import bind
from sqlserver_emulator.engine.values.units import array_of_units
from sqlserver_emulator.events import Column, RowsArrow
from sqlserver_emulator.system_types import BY_NAME, SYSTEM_TYPES, names_where
from sqlserver_emulator.system_types.record import VARIANT
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.types import TsqlType

LARGE_ROWS = 2_500
_BATCH_BYTES = 4 << 20
# Short, because the estimate changes with the table; long enough for a loop that runs one query.
_ESTIMATE_HOLDS_SECONDS = 2.0
_ESTIMATES_MAX = 500
# A composite type comes as a struct that is not the wire's, and a variant has no type of its own.
_NOT_IN_ARROW = names_where(
    lambda type: (type.is_composite and type.wire.packing is not Packing.DATE_TIME_OFFSET) or type.family == VARIANT
)
_WITH_OFFSET = names_where(lambda type: type.wire.packing is Packing.DATE_TIME_OFFSET)
_COARSE = {type.name: type.storage.partition("(")[0] for type in SYSTEM_TYPES if type.storage_of_ticks}
_MONEY = names_where(lambda type: type.wire.packing is Packing.MONEY)
_BYTES = names_where(lambda type: type.wire.packing is Packing.BYTES)
_DECIMALS = names_where(lambda type: type.wire.packing is Packing.DECIMAL)
# An int64 holds any 18 digits.
_INT64_DIGITS = 18


class RowEstimates:
    """The planner's row estimates, remembered for a moment: a statement that is run often is explained seldom."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int]] = {}

    def known(self, sql: str) -> int | None:
        found = self._known.get(sql)
        return found[1] if found and time.monotonic() - found[0] < _ESTIMATE_HOLDS_SECONDS else None

    def note(self, sql: str, rows: int) -> None:
        # Dropped as a whole: an entry is worth two seconds at most, which no order of eviction is worth.
        if len(self._known) >= _ESTIMATES_MAX:
            self._known.clear()
        self._known[sql] = (time.monotonic(), rows)


def explain(sql: str, values: Sequence[object]) -> str:
    """Return the EXPLAIN statement for a query with its parameters."""
    # EXPLAIN takes no parameters of an unprepared statement, so the values are written into it.
    return f"EXPLAIN (FORMAT JSON) {bind.inline(sql, values)}"


def estimated_rows(plan: object) -> int:
    """From the answer of ``explain``, parsed or as text."""
    tree: Any = json.loads(plan) if isinstance(plan, str) else plan
    # The estimate of the plan's top node is that of the whole result.
    return int(tree[0]["Plan"]["Plan Rows"])


def fits_arrow(columns: Sequence[Column]) -> bool:
    """Return whether Arrow batches carry every column's type."""
    return all(column.type.name not in _NOT_IN_ARROW for column in columns)


class ArrowReader:
    """The session's second connection, opened when it is first needed and kept."""

    def __init__(self, database: ArrowDatabase) -> None:
        self._database = database
        self._connection: Any = None
        self._applied: dict[str, str] = {}
        self._statement: Any = None

    def read(
        self, sql: str, values: Sequence[object], columns: Sequence[Column], context: Mapping[str, str]
    ) -> Generator[RowsArrow]:
        """The rows of a SELECT. ``context``: the session's role and settings. Raises StatementFailedError."""
        try:
            self._apply(context)
            with adbc_driver_manager.AdbcStatement(self._connection) as statement:
                self._statement = statement
                statement.set_options(
                    **{adbc_driver_postgresql.StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)}
                )
                # COPY takes no parameters either.
                statement.set_sql_query(_with_scaled_integers(bind.inline(sql, values), columns))
                for batch in _batches(statement):
                    yield RowsArrow(_as_declared(batch, columns))
        except (adbc_driver_manager.Error, pa.ArrowException) as error:
            raise _failure(error) from error
        finally:
            self._statement = None

    def cancel(self) -> None:
        """From any thread."""
        # Read once: the reading thread may clear it between the check and the call.
        statement = self._statement
        if statement is not None:
            statement.cancel()

    def close(self) -> None:
        if self._connection is not None:
            self._database.disconnect(self._connection)

    def _apply(self, context: Mapping[str, str]) -> None:
        if self._connection is None:
            self._connection = self._database.connect()
        # The role and settings of the session have to hold here too, or rights and functions would answer differently.
        changed = {name: value for name, value in context.items() if self._applied.get(name) != value}
        if changed:
            calls = (f"set_config({quote_literal(n)}, {quote_literal(v)}, false)" for n, v in changed.items())
            with adbc_driver_manager.AdbcStatement(self._connection) as statement:
                statement.set_sql_query("SELECT " + ", ".join(calls))
                statement.execute_update()
            self._applied.update(changed)


def _batches(statement: Any) -> Iterator[pa.RecordBatch]:
    """The driver's reader that keeps the fields of an error; pyarrow's loses them."""
    stream, _rows = statement.execute_query()
    with AdbcRecordBatchReader._import_from_c(stream.address) as reader:
        yield from reader


def _with_scaled_integers(sql: str, columns: Sequence[Column]) -> str:
    """Decimals of up to 18 digits travel as integers: as text they would cost more than all other columns together.

    Times of seven digits do, because the driver does not know their types; an expression of fewer digits may have them.
    """
    names = [f"c{i}" for i in range(len(columns))]
    items = [_as_sent(name, column.type) for name, column in zip(names, columns, strict=True)]
    if items == names:
        return sql
    if any(column.type.name in _WITH_OFFSET for column in columns):
        # Its parts are named twice and more: without the fence PostgreSQL would compute the expression as often.
        sql = f"SELECT * FROM ({sql}) AS p OFFSET 0"  # noqa: S608  (translated SQL)
    return f"SELECT {', '.join(items)} FROM ({sql}) AS q ({', '.join(names)})"  # noqa: S608  (translated SQL)


def _as_sent(name: str, type_: TsqlType) -> str:
    if _travels_scaled(type_):
        return f"({name} * {10 ** _scale(type_)})::bigint"
    if type_.name in _WITH_OFFSET:
        # A struct of a type that the driver does not know would come as bytes.
        return f"CASE WHEN {name} IS NOT NULL THEN ARRAY[({name}).utc::bigint, ({name}).offset_minutes] END"
    if type_.has_ticks:
        return f"{name}::{BY_NAME[type_.name].storage_of_ticks}::bigint"
    return f"{name}::{_COARSE[type_.name]}" if type_.name in _COARSE else name


def _travels_scaled(type_: TsqlType) -> bool:
    # The 19 digits of money are those of an int64.
    return type_.name in _MONEY or (type_.name in _DECIMALS and type_.precision <= _INT64_DIGITS)


def _scale(type_: TsqlType) -> int:
    return BY_NAME[type_.name].facets.scale if type_.name in _MONEY else type_.scale


def _precision(type_: TsqlType) -> int:
    return BY_NAME[type_.name].facets.precision if type_.name in _MONEY else type_.precision


def _as_declared(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    arrays = [_array(batch.column(i), column.type) for i, column in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])


def _array(array: Any, type_: TsqlType) -> Any:
    """Without extension types; decimals, which come as integers or text, as decimal128; bytes that come as text."""
    if _travels_scaled(type_):
        return _decimals(array, pa.decimal128(_precision(type_), _scale(type_)))
    if type_.name in _WITH_OFFSET:
        return _moments_with_offset(array)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if type_.name in _BYTES and pa.types.is_string(array.type):
        return array_of_units(array, None if type_.is_max else type_.length)
    if type_.name in _DECIMALS:
        return array.cast(pa.decimal128(type_.precision, type_.scale))
    return array


def _moments_with_offset(array: Any) -> Any:
    """Lists of ticks and minutes as structs of them."""
    absent = np.asarray(array.is_null().to_numpy(zero_copy_only=False))
    parts = np.zeros((len(array), 2), "<i8")
    parts[~absent] = array.flatten().to_numpy().reshape(-1, 2)
    fields = [pa.field("utc", pa.int64()), pa.field("minutes", pa.int16())]
    arrays = [pa.array(np.ascontiguousarray(parts[:, 0])), pa.array(parts[:, 1].astype("<i2"))]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent))


def _decimals(array: Any, to: Any) -> Any:
    """Scaled int64 as decimal128: the same bits, the sign carried into the upper half."""
    if array.offset:
        # The buffers know nothing of the offset; a copy begins at zero.
        array = pa.concat_arrays([array])
    validity, data = array.buffers()
    low = np.frombuffer(data, "<i8", count=len(array))
    words = np.empty((len(array), 2), "<i8")
    words[:, 0] = low
    # An arithmetic shift: all ones for a negative number, else zeros, as the upper half of two's complement has them.
    words[:, 1] = low >> 63
    return pa.Array.from_buffers(to, len(array), [validity, pa.py_buffer(words)], array.null_count)


def _failure(error: Exception) -> StatementFailedError:
    """The driver's error as that of any other statement. Its details carry PostgreSQL's diagnostic fields."""
    details = {_text(key): _text(value) for key, value in getattr(error, "details", None) or ()}
    return StatementFailedError(
        # 58030 is PostgreSQL's I/O error: what the driver itself reports has no SQLSTATE.
        sqlstate=getattr(error, "sqlstate", None) or "58030",
        message=details.get("PG_DIAG_MESSAGE_PRIMARY", str(error)),
        detail=details.get("PG_DIAG_MESSAGE_DETAIL", ""),
    )


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
