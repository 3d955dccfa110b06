"""Arrow text and binary columns to parts of rows: one re-encoding of the whole buffer, lengths by a cumulative sum."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from sqlserver_emulator import code_units, unit_arrays
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.tds import type_info
from sqlserver_emulator.tds.arrow_parts import FixedPart, Mask, Numbers, Part, VariablePart
from sqlserver_emulator.tds.values import POINTER, without_blanks
from sqlserver_emulator.types import TsqlType

_NULL_LENGTH = 0xFFFF
_NULL_PLP = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


def content_parts(type_: TsqlType, array: Any, present: Mask | None) -> list[Part]:
    content = _content(type_, array, present)
    lengths = np.diff(content.offsets)
    if type_.name in type_info.POINTER_NAMES:
        return [*_pointer_parts(lengths, present), content]
    if type_info.is_plp(type_):
        return _chunk_parts(content, lengths, present)
    if lengths.max(initial=0) > type_info.value_bytes(type_):
        content = _without_blanks(type_, content)
        lengths = np.diff(content.offsets)
    announced = lengths if present is None else np.where(present, lengths, _NULL_LENGTH)
    return [FixedPart([("<u2", announced)]), content]


def _without_blanks(type_: TsqlType, content: VariablePart) -> VariablePart:
    data, largest = bytes(content.data), type_info.value_bytes(type_)
    values = [data[start:end] for start, end in pairwise(content.offsets)]
    fitting = [value if len(value) <= largest else without_blanks(type_, value) for value in values]
    return VariablePart(np.cumsum([0, *map(len, fitting)]), b"".join(fitting))


def _chunk_parts(content: VariablePart, lengths: Numbers, present: Mask | None) -> list[Part]:
    """PLP: total, chunk length, the chunk, and the empty chunk that ends it; an empty value is total 0 and that end."""
    totals = lengths.astype("<u8")
    head = FixedPart([("<u8", totals), ("<u4", lengths)])
    if present is not None:
        head = FixedPart([("<u8", np.where(present, totals, _NULL_PLP)), ("<u4", lengths)], present, 8)
    return [head, content, FixedPart([("<u4", 0)], lengths > 0, 0)]


def _pointer_parts(lengths: Numbers, present: Mask | None) -> list[Part]:
    pointer = np.frombuffer(POINTER[1:], "<u8")
    first: Numbers | int = POINTER[0] if present is None else np.where(present, POINTER[0], 0)
    words: list[tuple[str, Numbers | int]] = [("<u8", int(word)) for word in pointer]
    return [FixedPart([("u1", first), *words, ("<u4", lengths)], present, 1)]


def _content(type_: TsqlType, array: Any, present: Mask | None) -> VariablePart:
    binary = BY_NAME[type_.name].wire.packing is Packing.BYTES
    arrow_type = pa.binary() if binary else pa.string()
    if array.type != arrow_type:
        array = array.cast(arrow_type)
    if present is not None:
        # A NULL may lie over bytes; filling makes it empty.
        array = array.fill_null(b"" if binary else "")
    offsets, data = unit_arrays.content(array)
    return VariablePart(offsets, data) if binary else _encode_text(type_, offsets, data)


def _encode_text(type_: TsqlType, offsets: Numbers, data: memoryview) -> VariablePart:
    if BY_NAME[type_.name].is_national:
        return VariablePart(*unit_arrays.encode(offsets, data))
    text = str(data, "utf-8")
    encoded = code_units.to_code_page(text, type_info.CODE_PAGE)
    # A unit is one byte, also one that the code page does not know.
    return VariablePart(offsets if text.isascii() else unit_arrays.encode(offsets, data)[0] // 2, encoded)
