"""Rows of events as Arrow batches in the shape of a table of a plan.

An update that gave a row another key is two changes: the image before it, and the row under its new key. So net changes
remove the old key (``spark.net``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from floodmark.core.change import Operation
from floodmark.core.errors import ConfigError
from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import SourceColumn, SourceTable
from floodmark.core.window.columns import ValueColumn, value_columns
from floodmark.sources.event_stream.arrays import build_array
from floodmark.sources.event_stream.envelope import EventOperation
from floodmark.sources.event_stream.faults import PoisonError
from floodmark.sources.event_stream.positions import change_position
from floodmark.sources.event_stream.rows import EventRow, TableForm, Values
from floodmark.sources.event_stream.values import has_form_of
from floodmark.sync.ports.arrow import arrow_type

POSITION = "__position"
OPERATION = "__operation"
MASK = "__mask"
OWN_COLUMNS = ((POSITION, "binary"), (OPERATION, "int"), (MASK, "binary"))
_OWN_FIELDS = [pa.field(POSITION, pa.binary()), pa.field(OPERATION, pa.int32()), pa.field(MASK, pa.binary())]
_OPERATIONS = {EventOperation.INSERT: Operation.INSERT, EventOperation.UPDATE: Operation.UPDATE}


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read, and why."""

    place: int
    reason: str


class _Change(NamedTuple):
    """A change of a key."""

    place: int
    position: bytes
    operation: Operation
    values: Values


class TableRows:
    """A builder of the batches of one table."""

    def __init__(self, table: SourceTable, temporal: TemporalPolicy) -> None:
        self._table = table
        self._temporal = temporal
        self._columns = value_columns(table, temporal)
        self._present = {column.name: column for column in table.stored_columns}
        fields = [pa.field(column.name, arrow_type(column.type)) for column in self._columns]
        self.schema = pa.schema([*_OWN_FIELDS, *fields])

    def empty(self) -> pa.RecordBatch:
        """Return a batch without rows."""
        return pa.RecordBatch.from_pylist([], schema=self.schema)

    def build(self, form: TableForm, rows: Sequence[EventRow]) -> Iterator[pa.RecordBatch | BadRow]:
        """Yield batches of rows, and the rows that cannot be read.

        Raises ConfigError for events that leave out columns of the table.
        """
        self._require_columns(form)
        places = _places(form)
        key = [places[name] for name in self._table.key]
        changes: list[_Change] = []
        for row in rows:
            try:
                changes += self._changes(form, key, row)
            except PoisonError as fault:
                yield BadRow(row.place, str(fault))
        if changes:
            yield from self._batches(form, changes)

    def _changes(self, form: TableForm, key: Sequence[int], row: EventRow) -> list[_Change]:
        """Return the changes of keys that a row is. ``key``: the places of the key's columns."""
        try:
            position = change_position(row.commit_lsn, row.sequence)
        except OverflowError:
            raise PoisonError("the sequence number of the change has more than four bytes") from None
        if row.current is None:
            return [_Change(row.place, position, Operation.DELETE, row.old or self._key_values(form, row))]
        if row.old is not None and [row.old[place] for place in key] != [row.current[place] for place in key]:
            if self._table.is_partial and len(form.columns) < len(self._table.columns):
                raise PoisonError("an update of the key leaves out columns: the row under its new key would lack them")
            return [
                _Change(row.place, position, Operation.BEFORE_UPDATE, row.old),
                _Change(row.place, position, Operation.MOVED, row.current),
            ]
        return [_Change(row.place, position, _OPERATIONS[row.operation], row.current)]

    def _key_values(self, form: TableForm, row: EventRow) -> Values:
        """Return the values of a deleted row of which only the key is known."""
        key = dict(row.key)
        if not set(self._table.key) <= key.keys():
            raise PoisonError("a delete has no values, and its key is not the key of the table")
        return tuple(key.get(column.name) for column in form.columns)

    def _batches(self, form: TableForm, changes: Sequence[_Change]) -> Iterator[pa.RecordBatch | BadRow]:
        """Yield changes as one batch. A bad one is found by halves, so that the others are read."""
        try:
            yield self._batch(form, changes)
        except PoisonError as fault:
            if len(changes) == 1:
                yield BadRow(changes[0].place, str(fault))
                return
            half = len(changes) // 2
            yield from self._batches(form, changes[:half])
            yield from self._batches(form, changes[half:])

    def _batch(self, form: TableForm, changes: Sequence[_Change]) -> pa.RecordBatch:
        places = _places(form)
        _, positions, operations, rows = zip(*changes, strict=True)
        texts = list(zip(*rows, strict=True))
        arrays: list[pa.Array] = [
            pa.array(positions, pa.binary()),
            pa.array(operations, pa.int32()),
            pa.array([self._mask(form)] * len(changes), pa.binary()),
        ]
        for column in self._columns:
            place = places.get(column.name)
            if place is None:
                arrays.append(pa.nulls(len(changes), arrow_type(column.type)))
            else:
                arrays.append(self._array(column, form.columns[place].column, texts[place]))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, column: ValueColumn, written: SourceColumn, texts: Sequence[str | None]) -> pa.Array:
        """Return a column of a batch. ``written``: the column when the events were written."""
        present = self._present[column.name]
        if not has_form_of(written, present) and any(text is not None for text in texts):
            cause = f"had type {written.declared_type} when the event was written, and is {present.declared_type} now"
            raise PoisonError(f"column {column.name} {cause}")
        return build_array(texts, present, column.type, self._temporal)

    def _mask(self, form: TableForm) -> bytes | None:
        """Return the columns that events have, in the form of an update mask; None for tables with whole events."""
        if not self._table.is_partial:
            return None
        carried = {each.name for each in form.columns}
        bits = sum(1 << column.ordinal - 1 for column in self._table.columns if column.name in carried)
        return bits.to_bytes(-(-max(column.ordinal for column in self._table.columns) // 8))

    def _leaves_out(self, form: TableForm) -> list[str]:
        """Return the columns that events leave out although the table had them when they were written.

        A column that is added later has a place behind all others: earlier events leave it out.
        """
        carried = {each.name for each in form.columns}
        last = max(each.index for each in form.columns)
        stored = self._table.stored_columns
        return [column.name for column in stored if column.name not in carried and column.ordinal <= last]

    def _require_columns(self, form: TableForm) -> None:
        """Raise ConfigError for events that leave out columns of the key, or others where they should be whole."""
        carried = {each.name for each in form.columns}
        unknown = [name for name in self._table.key if name not in carried]
        if unknown:
            raise ConfigError(
                str(self._table.name),
                f"its events leave out columns of its key ({', '.join(unknown)}).",
                "Give the table a primary key, or add it to its stream group again with @include_all_columns = 1.",
            )
        missing = [] if self._table.is_partial else self._leaves_out(form)
        if missing:
            raise ConfigError(
                str(self._table.name),
                f"its events leave out columns ({', '.join(missing)}).",
                "Add the table to its stream group again with @include_all_columns = 1.",
            )


def _places(form: TableForm) -> dict[str, int]:
    return {each.name: place for place, each in enumerate(form.columns)}
