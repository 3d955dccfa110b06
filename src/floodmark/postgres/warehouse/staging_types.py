"""The Arrow types that COPY sends, and the conversion of a batch to them.

The binary form of each type is the one that PostgreSQL uses for the column. Binary COPY checks no types, so a wrong
type would store wrong values.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.types import Kind, WarehouseType
from floodmark.sync.ports.arrow import arrow_type

_OTHER_TYPES = {Kind.TIME: pa.time64("us"), Kind.UUID: pa.binary(16)}


def staging_type(of: WarehouseType) -> pa.DataType:
    """Return the type of a column in the batches that COPY sends."""
    return _OTHER_TYPES.get(of.kind) or arrow_type(of)


def to_staging(array: pa.Array, kind: WarehouseType) -> pa.Array:
    """Return a column of a batch in the type that COPY sends."""
    target = staging_type(kind)
    if kind.kind is Kind.UUID:
        return uuid_bytes(array)
    if kind.kind is Kind.TIME:  # Arrow cannot parse a time of day without a date
        day = pa.scalar("1970-01-01 ")
        return pc.binary_join_element_wise(day, array, "").cast(pa.timestamp("us")).cast(target)
    return array if array.type == target else array.cast(target)


_HEX_VALUE = np.zeros(256, dtype=np.uint8)
for _digits in ("0123456789abcdef", "0123456789ABCDEF"):
    _HEX_VALUE[np.frombuffer(_digits.encode(), dtype=np.uint8)] = np.arange(16, dtype=np.uint8)
_UUID_TEXT_LENGTH = 36
_UUID_DIGITS = np.array([i for i in range(_UUID_TEXT_LENGTH) if i not in (8, 13, 18, 23)])
_NIL = "00000000-0000-0000-0000-000000000000"


def uuid_bytes(array: pa.Array) -> pa.Array:
    """Return 16 bytes per value in the order of its text, from canonical texts in upper or lower case."""
    dense = pc.fill_null(array, _NIL).cast(pa.string())
    offset = dense.offset
    offsets = np.frombuffer(dense.buffers()[1], dtype=np.int32)[offset : offset + len(dense) + 1]
    if len(dense) == 0:
        return pa.array([], pa.binary(16))
    text = np.frombuffer(dense.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(-1, _UUID_TEXT_LENGTH)
    digits = _HEX_VALUE[text[:, _UUID_DIGITS]]
    values = np.ascontiguousarray((digits[:, 0::2] << 4) | digits[:, 1::2])
    packed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(dense), [None, pa.py_buffer(values)])
    return pc.if_else(array.is_valid(), packed, pa.scalar(None, pa.binary(16))) if array.null_count else packed
