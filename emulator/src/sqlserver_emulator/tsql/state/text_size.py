"""SET TEXTSIZE: how many bytes of a large value a SELECT sends. Pure.

It is about the types that have no length, text and ntext and image among them; others are sent whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sqlserver_emulator.code_units import first_units
from sqlserver_emulator.events import Column, Rows, RowsArrow
from sqlserver_emulator.system_types import BY_NAME, names_where
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.unit_arrays import may_have_pairs

UNLIMITED: Final = 2147483647
DEFAULT: Final = 4096
_NO_LENGTH: Final = names_where(lambda type: type.is_legacy_lob or type.wire.packing is Packing.XML)
_MAY_BE_MAX: Final = names_where(lambda type: type.length is not None and type.length.may_be_max)


def cut_texts(columns: Sequence[Column], batches: Iterator[Rows | RowsArrow], size: int) -> Iterator[Rows | RowsArrow]:
    """Return the batches with large values cut to ``size`` bytes."""
    limits = {
        # TEXTSIZE counts bytes; a character of a national type has two.
        at: size // BY_NAME[column.type.name].unit_bytes
        for at, column in enumerate(columns)
        if column.type.name in _NO_LENGTH or (column.type.is_max and column.type.name in _MAY_BE_MAX)
    }
    if not limits:
        return batches
    return (_cut_rows(batch, limits) if isinstance(batch, Rows) else _cut_arrow(batch, limits) for batch in batches)


def _cut_rows(batch: Rows, limits: Mapping[int, int]) -> Rows:
    return Rows(
        [
            tuple(
                _cut(value, limits[at]) if at in limits and isinstance(value, str | bytes) else value
                for at, value in enumerate(row)
            )
            for row in batch.rows
        ]
    )


def _cut(value: str | bytes, limit: int) -> str | bytes:
    return first_units(value, limit) if isinstance(value, str) else value[:limit]


def _cut_arrow(batch: RowsArrow, limits: Mapping[int, int]) -> RowsArrow:
    table: Any = batch.batch
    arrays = [_cut_array(array, limits[at]) if at in limits else array for at, array in enumerate(table.columns)]
    return RowsArrow(pa.RecordBatch.from_arrays(arrays, names=table.schema.names))


def _cut_array(array: Any, limit: int) -> Any:
    # A column of NULLs only has no type that could be sliced.
    if pa.types.is_null(array.type):
        return array
    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    cut = pc.utf8_slice_codeunits(array, 0, limit) if is_text else pc.binary_slice(array, 0, limit)
    if is_text and may_have_pairs(cut):
        cut = pa.array([text and first_units(text, limit) for text in cut.to_pylist()], array.type)
    return cut.cast(array.type)
