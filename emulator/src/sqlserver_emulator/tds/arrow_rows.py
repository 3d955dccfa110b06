"""ROW tokens from an Arrow record batch, without a Python object per cell: for large results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sqlserver_emulator.tds.arrow_columns import column_parts
from sqlserver_emulator.tds.arrow_parts import FixedPart, Mask, Part, join_parts
from sqlserver_emulator.tds.rows import ROW
from sqlserver_emulator.types import TsqlType

_SLICE_ROWS = 4_096
_SLICE_BYTES = 16 << 20


class ArrowRowEncoder:
    """Made once per shape of result set. Works in slices that fit the caches and bound the memory of large values."""

    def __init__(self, types: Sequence[TsqlType]) -> None:
        self._columns = [column_parts(type_) for type_ in types]

    def encode(self, batch: Any) -> Iterator[memoryview]:
        """``batch`` is a pyarrow.RecordBatch as ``events.RowsArrow`` describes it."""
        rows = batch.num_rows
        step = max(1, min(_SLICE_ROWS, rows * _SLICE_BYTES // max(batch.nbytes, 1)))
        for start in range(0, rows, step):
            yield self._encode_slice(batch.slice(start, step))

    def _encode_slice(self, batch: Any) -> memoryview:
        parts: list[Part] = [FixedPart([("u1", ROW)])]
        for i, column in enumerate(self._columns):
            array = batch.column(i)
            parts += column(array, _present(array))
        return join_parts(parts, batch.num_rows)


def _present(array: Any) -> Mask | None:
    if array.null_count == 0:
        return None
    present: Mask = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    return present
