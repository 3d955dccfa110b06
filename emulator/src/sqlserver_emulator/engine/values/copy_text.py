"""Arrow batches as PostgreSQL's COPY text, a column at a time; which values are NULL or DEFAULT is said per column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlserver_emulator.code_units import first_units, unit_count
from sqlserver_emulator.engine.translation import CatalogColumn
from sqlserver_emulator.unit_arrays import may_have_pairs

# COPY's text format writes a backslash as two, so no value can equal these.
NULL, DEFAULT = "\\N", "\\D"
_PIECE_BYTES = 128 << 10
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


class TextTooLongError(ValueError):
    """The text has more code units than its column; PostgreSQL, which counts characters, would take it."""

    def __init__(self, column: CatalogColumn, text: str) -> None:
        super().__init__(f"a text is too long for column {column.name}")
        self.column = column
        self.text = text


def copy_options() -> str:
    """Return the options of COPY that ``copy_pieces`` writes for."""
    return f"(FORMAT text, NULL '{NULL}', DEFAULT '{DEFAULT}')"


def copy_pieces(batch: Any, columns: Sequence[CatalogColumn], nulls: Sequence[str]) -> Iterator[bytes]:
    """``columns``: where the batch's columns go; ``nulls``: what a NULL becomes in each, ``NULL`` or ``DEFAULT``.

    Raises TextTooLongError.
    """
    texts = [
        pc.fill_null(_text(batch.column(i), column), null)
        for i, (column, null) in enumerate(zip(columns, nulls, strict=True))
    ]
    lines = pc.binary_join_element_wise(*texts, "\t") if len(texts) > 1 else texts[0]
    lines = pc.binary_join_element_wise(lines, "", "\n")
    # The data buffer of the joined column is the COPY text itself: no Python string for each row.
    data = memoryview(lines.buffers()[2])
    for start in range(0, len(data), _PIECE_BYTES):
        yield bytes(data[start : start + _PIECE_BYTES])


def _text(array: Any, column: CatalogColumn) -> Any:
    type_ = array.type
    if pa.types.is_string(type_):
        return _escaped(_fitting(array, column))
    if pa.types.is_struct(type_):
        return _datetimeoffset(array)
    if pa.types.is_fixed_size_binary(type_):
        return _hex(array)
    if pa.types.is_binary(type_):
        return pc.binary_join_element_wise("\\\\x", _padded(_hex(array), column), "")
    return pc.cast(array, pa.string())


def _fitting(array: Any, column: CatalogColumn) -> Any:
    """Return the texts without blanks that have no place in the column."""
    if column.type.length <= 0 or not may_have_pairs(array):
        return array
    return pa.array([text and _fitting_text(text, column) for text in array.to_pylist()], array.type)


def _fitting_text(text: str, column: CatalogColumn) -> str:
    if unit_count(text) <= column.type.length:
        return text
    if unit_count(text.rstrip(" ")) > column.type.length:
        raise TextTooLongError(column, text)
    return first_units(text, column.type.length)


def _escaped(array: Any) -> Any:
    buffer = array.buffers()[2]
    data = bytes(buffer) if buffer is not None else b""
    # The backslash comes first, or it would double those of the other escapes.
    for plain, escaped in _ESCAPES:
        if plain.encode() in data:
            array = pc.replace_substring(array, plain, escaped)
    return array


def _datetimeoffset(array: Any) -> Any:
    """PostgreSQL's text of the composite type that keeps the offset."""
    moment, minutes = (pc.cast(pc.struct_field(array, name), pa.string()) for name in ("utc", "minutes"))
    text = pc.binary_join_element_wise('("', moment, '",', minutes, ")", "")
    # A struct that is NULL would otherwise join to a text of empty parts.
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


def _hex(array: Any) -> Any:
    """Two digits for each byte."""
    # The buffers of a slice begin before it; a copy begins at zero.
    array = pa.array(array) if array.offset else array
    if pa.types.is_fixed_size_binary(array.type):
        array = pc.cast(array, pa.binary())
    validity, offsets, data = array.buffers()
    numbers = np.frombuffer(data or b"", dtype=np.uint8)
    digits = np.empty((len(numbers), 2), dtype=np.uint8)
    digits[:, 0], digits[:, 1] = _HEX_DIGITS[numbers >> 4], _HEX_DIGITS[numbers & 15]
    # Two digits a byte: the text's offsets are those of the bytes, doubled.
    doubled = pa.py_buffer(np.frombuffer(offsets, dtype=np.int32)[: len(array) + 1] * 2)
    return pa.Array.from_buffers(pa.string(), len(array), [validity, doubled, pa.py_buffer(digits)])


def _padded(array: Any, column: CatalogColumn) -> Any:
    """binary(n) has n bytes always."""
    if column.type.name != "binary":
        return array
    pad: Callable[..., Any] = pc.ascii_rpad
    return pad(array, 2 * column.type.length, "0")
