"""Columns that PostgreSQL sends as texts and a client gets as bytes: their UTF-16 code units, cut to a length.

PostgreSQL has no function for them; to compute them there takes ten times as long as to send the texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlserver_emulator import unit_arrays
from sqlserver_emulator.code_units import to_utf16
from sqlserver_emulator.engine.values.rows import Row


def rows_of_units(rows: Sequence[Row], lengths: Mapping[int, int | None]) -> Sequence[Row]:
    """Return the rows with bytes for the texts of some columns. lengths: of these columns in bytes; None: any."""
    if not lengths or not rows:
        return rows
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    for at, length in lengths.items():
        columns[at] = [None if text is None else to_utf16(text)[:length] for text in columns[at]]
    return list(zip(*columns, strict=True))


def array_of_units(texts: Any, length: int | None) -> Any:
    """Return the Arrow array of bytes for one of texts."""
    ends, data = unit_arrays.encode(*unit_arrays.content(texts.fill_null("")))
    if ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"{ends[-1]} bytes in one batch of a result")
    units = pa.Array.from_buffers(
        pa.binary(), len(texts), [None, pa.py_buffer(ends.astype("<i4", copy=False)), pa.py_buffer(data)]
    )
    if length is not None and np.diff(ends).max(initial=0) > length:
        units = pc.binary_slice(units, 0, length)
    return pc.if_else(texts.is_valid(), units, None) if texts.null_count else units
