"""National strings as the code units that the server stores, which are any sequence of 16 bits.

The driver replaces half of a surrogate pair by U+FFFD, and two keys that differ in it alone would be one. So such
columns travel as bytes, which costs the server nothing, and are decoded here. A half of a pair becomes the three bytes
that UTF-8 would have for it: no valid text, so that the warehouse finds it (``postgres.warehouse.unstorable``).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.schema import MAX_LENGTH, SourceColumn
from floodmark.core.types import Kind
from floodmark.core.window.columns import ValueColumn

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
