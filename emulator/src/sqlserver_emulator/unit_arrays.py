"""Arrow columns of texts as UTF-16 code units: all values of a column at once (``code_units`` has single texts)."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sqlserver_emulator.code_units import UTF8_PREFIX

Numbers: TypeAlias = npt.NDArray[Any]

_UNITS: Final = "<u2"
_ASCII_END: Final = 0x80
_FOUR_BYTES: Final = 0xF0
"""Bytes from here on begin a character of four bytes in UTF-8."""
_FIRST_HIGH: Final = 0xDBFC
"""The first half of the pair that is the character for U+D800 (``code_units``)."""
_LAST_HIGH: Final = 0xDBFE
"""The first half of the pair that is the character for U+0000."""
_FIRST_LOW: Final = 0xDC00
_FIRST_SURROGATE: Final = 0xD800
_SURROGATES: Final = 0x800


def content(array: Any) -> tuple[Numbers, memoryview]:
    """Return the offsets of an Arrow array of texts or bytes, from 0 on, and the bytes of its values."""
    _validity, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, "<i4")[array.offset : array.offset + len(array) + 1]
    start, end = int(offsets[0]), int(offsets[-1])
    return offsets - start, memoryview(data_buffer or b"")[start:end]


def may_have_pairs(array: Any) -> bool:
    """Return whether an Arrow array has texts with a character of four bytes, which can be two units."""
    return bool(np.frombuffer(array.buffers()[2] or b"", np.uint8).max(initial=0) >= _FOUR_BYTES)


def encode(offsets: Numbers, data: memoryview) -> tuple[Numbers, bytes]:
    """Return the offsets and the bytes of the code units, little-endian, of texts in UTF-8."""
    octets: Numbers = np.frombuffer(data, np.uint8)
    if not len(octets) or octets.max() < _ASCII_END:
        return offsets.astype(np.int64) * 2, octets.astype(_UNITS).tobytes()
    units = np.frombuffer(str(data, "utf-8").encode("utf-16-le"), _UNITS)
    # A character of four bytes is a pair.
    ends = _counted(_begins(octets) + (octets >= _FOUR_BYTES), offsets)
    if UTF8_PREFIX in bytes(data):
        units, ends = _resolved(units, ends)
    return ends * 2, units.tobytes()


def _begins(octets: Numbers) -> Numbers:
    """Return 1 for each byte with which a character begins."""
    begins: Numbers = (octets & 0xC0) != 0x80
    return begins.astype(np.uint8)


def _counted(counts: Numbers, offsets: Numbers) -> Numbers:
    """Return the sum of the counts before each offset. There are no more units than bytes, of which int32 is enough."""
    sums = np.zeros(len(counts) + 1, np.int32)
    # Ten times as fast as a sum in int64.
    np.cumsum(counts, out=sums[1:])
    return sums[offsets].astype(np.int64)


def _resolved(units: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Put code units in the places of the pairs that they are held as (ADR 50)."""
    places = np.flatnonzero((units >= _FIRST_HIGH) & (units <= _LAST_HIGH))
    numbers = ((units[places].astype(np.int64) - _FIRST_HIGH) << 10) + units[places + 1] - _FIRST_LOW
    places, numbers = places[numbers <= _SURROGATES], numbers[numbers <= _SURROGATES]
    units = units.copy()
    units[places] = np.where(numbers == _SURROGATES, 0, numbers + _FIRST_SURROGATE)
    return np.delete(units, places + 1), ends - np.searchsorted(places, ends)
