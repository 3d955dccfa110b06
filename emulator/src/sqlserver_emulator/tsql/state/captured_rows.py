"""The rows that a procedure returned, kept for INSERT … EXEC."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa

from sqlserver_emulator import precise
from sqlserver_emulator.contract import StatementResult
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import (
    Column,
    Event,
    ResultStart,
    ReturnStatus,
    Rows,
    RowsArrow,
    StatementDone,
)
from sqlserver_emulator.system_types import names_where
from sqlserver_emulator.system_types.record import DECIMAL
from sqlserver_emulator.types import TsqlType

_T = TypeVar("_T")
_DECIMALS = names_where(lambda type: type.family == DECIMAL)


class CapturedRows:
    """The rows of one call. ``columns``: of the first result set; all result sets must have as many (213)."""

    def __init__(self) -> None:
        self.columns: tuple[Column, ...] = ()
        self.rows: list[tuple[object, ...]] = []

    def drain(self, events: Generator[Event, None, _T]) -> Generator[Event, None, _T]:
        """Run ``events``, keep result sets, pass on everything else."""
        while True:
            try:
                event = next(events)
            except StopIteration as stop:
                result: _T = stop.value
                return result
            yield from self.take(event)

    def take(self, event: Event) -> Iterator[Event]:
        """Keep what belongs to a result set, pass on everything else."""
        match event:
            case ResultStart(columns):
                self._begin(columns)
            case Rows(rows):
                self.rows.extend(rows)
            case RowsArrow(batch):
                self.rows.extend(_arrow_rows(batch, self.columns))
            # INSERT … EXEC reports a count of its own, not those of the statements inside.
            case StatementDone(failed=False) | ReturnStatus():
                pass
            case _:
                yield event

    def read(self, result: StatementResult) -> None:
        """Keep all rows of a statement."""
        self._begin(result.columns or ())
        for batch in result.batches:
            self.rows.extend(batch.rows if isinstance(batch, Rows) else _arrow_rows(batch.batch, self.columns))

    def _begin(self, columns: tuple[Column, ...]) -> None:
        if self.columns and len(columns) != len(self.columns):
            raise SqlServerError(213, "Column name or number of supplied values does not match table definition.")
        # The first result set's columns hold for all of them; only their number has to agree.
        self.columns = self.columns or columns


def _arrow_rows(batch: object, columns: Sequence[Column]) -> list[tuple[object, ...]]:
    if not isinstance(batch, pa.RecordBatch):
        raise TypeError(f"not a record batch: {type(batch).__name__}")
    values = [_column_values(batch.column(i), column) for i, column in enumerate(columns)]
    return list(zip(*values, strict=True))


def _column_values(array: pa.Array, column: Column) -> list[object]:
    # Arrow carries them as text, bytes or ticks where the engine reads in bulk.
    values: list[object] = array.to_pylist()
    make = _make_of(column.type)
    return values if make is None else [None if value is None else make(value) for value in values]


def _make_of(type_: TsqlType) -> Callable[[Any], object] | None:
    """Return what makes the value of a row from that of an Arrow batch, if they differ."""
    if type_.name in _DECIMALS:
        return _decimal
    if type_.has_ticks:
        return precise.time_of if type_.name == "time" else precise.datetime_of
    return {"uniqueidentifier": _uuid, "datetimeoffset": _moment_with_offset}.get(type_.name)


def _decimal(value: object) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))


def _uuid(value: object) -> UUID:
    return UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value))


def _moment_with_offset(value: Mapping[str, int]) -> datetime:
    minutes = value["minutes"]
    return precise.datetime_of(value["utc"] + minutes * precise.MINUTE_TICKS, timezone(timedelta(minutes=minutes)))
