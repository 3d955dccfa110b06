"""Rows of a device as Arrow batches, in the shape of the table of the whole fleet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from floodmark.core.policies import TemporalPolicy
from floodmark.core.position import Position
from floodmark.core.schema import SourceTable
from floodmark.core.window.columns import value_columns
from floodmark.sources.compact.tables import DEVICE_COLUMN
from floodmark.sources.compact.types import converter
from floodmark.sync.ports.arrow import arrow_type

POSITION = "__position"
OPERATION = "__operation"
MASK = "__mask"
OWN_COLUMNS = ((POSITION, "binary"), (OPERATION, "int"), (MASK, "binary"))
_OWN_FIELDS = [pa.field(POSITION, pa.binary()), pa.field(OPERATION, pa.int32()), pa.field(MASK, pa.binary())]
BATCH_ROWS = 8192

Rows = Sequence[tuple[Any, ...]]


class RowBatches:
    """A builder of the batches of one table."""

    def __init__(self, table: SourceTable, temporal: TemporalPolicy, at: Position | None) -> None:
        """Take the position of the rows; None for rows without columns of a change."""
        self._at = at
        self._table = table
        self._values = value_columns(table, temporal)
        self._convert = {column.name: converter(column) for column in table.stored_columns}
        fields = [pa.field(column.name, arrow_type(column.type)) for column in self._values]
        self._schema = pa.schema([*(_OWN_FIELDS if at else []), *fields])

    def build(self, device: str, names: Sequence[str], rows: Rows, operation: int) -> Iterator[pa.RecordBatch]:
        """Yield rows of a device that have values in the columns of these names, and NULL in the others.

        Raises ValueRefusedError for a value that does not fit its column.
        """
        places = {name.lower(): place for place, name in enumerate(names)}
        for first in range(0, len(rows), BATCH_ROWS):
            yield self._batch(device, places, rows[first : first + BATCH_ROWS], operation)

    def empty(self) -> pa.RecordBatch:
        """Return a batch without rows."""
        return pa.RecordBatch.from_pylist([], schema=self._schema)

    def _batch(self, device: str, places: dict[str, int], rows: Rows, operation: int) -> pa.RecordBatch:
        arrays: list[pa.Array] = []
        if self._at:
            arrays = [
                pa.array([self._at.value] * len(rows), pa.binary()),
                pa.array([operation] * len(rows), pa.int32()),
                pa.nulls(len(rows), pa.binary()),
            ]
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
