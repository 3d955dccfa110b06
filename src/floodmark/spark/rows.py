"""Reads that need no collapsing, in the shape of ``net.collapse_changes``: stored columns, ``__lsn``, ``__op``, flags.

The rows of a first load have no changes, and the server's own net changes are net already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from floodmark.core.change import Operation
from floodmark.core.naming import LSN_COLUMN, OPERATION_COLUMN, keep_column
from floodmark.spark.net import has_value
from floodmark.sync.ports.reader import RowShape

Batches = Iterable[pa.RecordBatch]


def stamp_first_load(batches: Batches, shape: RowShape, rows_at: bytes) -> Iterator[pa.RecordBatch]:
    """Yield rows of the table itself as inserts at a position."""
    optional = [column.name for column in shape.optional]
    for batch in batches:
        arrays = [
            *batch.columns,
            pa.repeat(rows_at, batch.num_rows),
            _operations(Operation.INSERT, batch.num_rows),
        ]
        arrays += [pa.repeat(False, batch.num_rows)] * len(optional)
        names = [*batch.schema.names, LSN_COLUMN, OPERATION_COLUMN, *(keep_column(name) for name in optional)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def adapt_net_changes(batches: Batches, shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Yield rows of the server's net changes function."""
    columns, optional = shape.values, shape.optional
    for batch in batches:
        arrays = [batch.column(column.name) for column in columns]
        arrays += [batch.column(shape.position), batch.column(shape.operation).cast(pa.int16())]
        arrays += [pa.array(~has_value(batch, column, shape)) for column in optional]
        names = [*(column.name for column in columns), LSN_COLUMN, OPERATION_COLUMN]
        names += [keep_column(column.name) for column in optional]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _operations(operation: Operation, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(operation.value, pa.int16()), rows)
