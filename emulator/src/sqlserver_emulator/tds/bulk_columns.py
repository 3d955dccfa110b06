"""Columns of bulk-loaded rows as Arrow arrays, decoded a column at a time from the positions of their cells.

The arrays are of the types that ``events.RowsArrow`` names; datetimeoffset is a struct of ``utc`` (int64 of ticks) and
``minutes`` (int16). A value that its type cannot have is refused by its column's number (4815, 4895).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sqlserver_emulator import code_units
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.precise import DAY_TICKS, UNITS
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.system_types.record import SystemType
from sqlserver_emulator.system_types.sizes import time_bytes
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.tds import type_info
from sqlserver_emulator.tds.bulk_cells import CellMap, Layout, Length, Positions
from sqlserver_emulator.tds.moments import DAY_MICROSECONDS, DAY_TICKS_300, EPOCH_1900, EPOCH_1970
from sqlserver_emulator.types import TsqlType

Bytes: TypeAlias = npt.NDArray[np.uint8]
Nulls: TypeAlias = npt.NDArray[np.bool_]

_LAST_DAY = 3_652_058
"""9999-12-31, counted from year 1."""
_UUID_ORDER = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]


@dataclass(frozen=True, slots=True)
class BulkColumn:
    """``number`` counts from 1. ``code_page``: of char, varchar and text."""

    number: int
    type: TsqlType
    layout: Layout
    code_page: str = type_info.CODE_PAGE

    @property
    def record(self) -> SystemType:
        return BY_NAME[self.type.name]


class Cells:
    """One column's cells: where each value starts, how many bytes it has, and which are NULL."""

    def __init__(self, rows: CellMap, column: BulkColumn) -> None:
        self.column = column
        self._data = rows.data
        self.bytes: Bytes = np.frombuffer(rows.data, dtype=np.uint8)
        positions = rows.positions[:, column.number - 1]
        self.starts, self.sizes, self.nulls = self._extents(rows, positions)
        self.starts[self.nulls] = 0
        self.sizes[self.nulls] = 0

    def _extents(self, rows: CellMap, positions: Positions) -> tuple[Positions, Positions, Nulls]:
        layout, absent = self.column.layout, positions < 0
        if layout.length == Length.FIXED:
            return positions.copy(), np.full(len(positions), layout.size, dtype=np.int64), absent
        if layout.length == Length.BYTE:
            sizes = self._at(positions)
            return positions + 1, sizes, absent | (sizes == 0)
        if layout.length == Length.SHORT:
            sizes = self._at(positions) | self._at(positions + 1) << 8
            return positions + 2, sizes, absent | (sizes == 0xFFFF)
        return self._blob_extents(rows, positions, absent)

    def _blob_extents(self, rows: CellMap, positions: Positions, absent: Nulls) -> tuple[Positions, Positions, Nulls]:
        blobs = [rows.blobs[i] if i >= 0 else b"" for i in positions.tolist()]
        self._data = b"".join(blobs)
        self.bytes = np.frombuffer(self._data, dtype=np.uint8)
        sizes = np.fromiter(map(len, blobs), dtype=np.int64, count=len(blobs))
        return np.cumsum(sizes) - sizes, sizes, absent

    def _at(self, positions: Positions) -> Positions:
        return self.bytes.take(positions, mode="clip").astype(np.int64)

    def fixed(self, size: int) -> Bytes:
        """The first ``size`` bytes of each value, as rows; those beyond a value's end are 0."""
        offsets = np.arange(size)
        if not len(self.bytes):
            return np.zeros((len(self.starts), size), dtype=np.uint8)
        gathered: Bytes = self.bytes.take(self.starts[:, None] + offsets, mode="clip")
        if not (self.sizes >= size).all():
            gathered[self.sizes[:, None] <= offsets] = 0
        return gathered

    def exactly(self, size: int) -> Bytes:
        if ((self.sizes != size) & ~self.nulls).any():
            raise self.invalid()
        return self.fixed(size)

    def number(self, size: int, offset: int = 0) -> Positions:
        """An unsigned number of ``size`` bytes at ``offset`` of each value."""
        wide = np.zeros((len(self.starts), 8), dtype=np.uint8)
        wide[:, :size] = self.fixed(offset + size)[:, offset:]
        return wide.view("<i8")[:, 0]

    def content(self) -> bytes:
        """All values, one after the other."""
        data = self._data
        ends = self.starts + self.sizes
        return b"".join([data[start:end] for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True)])

    def array(self, values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
        return pa.array(values, mask=self.nulls).cast(type_)

    def buffered(self, type_: pa.DataType, data: npt.NDArray[Any], sizes: Positions | None = None) -> pa.Array:
        """An array upon ``data``; ``sizes``: bytes of each value of variable length."""
        valid = pa.array(~self.nulls).buffers()[1]
        buffers = [valid, pa.py_buffer(np.ascontiguousarray(data))]
        if sizes is not None:
            offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
            np.cumsum(sizes, out=offsets[1:])
            buffers.insert(1, pa.py_buffer(offsets))
        return pa.Array.from_buffers(type_, len(self.nulls), buffers)

    def invalid(self) -> SqlServerError:
        message = f"Received an invalid column length from the bcp client for colid {self.column.number}."
        return SqlServerError(4815, message)

    def require(self, holds: Nulls) -> None:
        if not (holds | self.nulls).all():
            raise self.invalid()


def decode_column(rows: CellMap, column: BulkColumn) -> pa.Array:
    return _DECODERS[column.record.wire.packing](Cells(rows, column))


def _bits(cells: Cells) -> pa.Array:
    return pa.array((_numbers(cells) != 0).astype(np.int16), mask=cells.nulls)


def _integers(cells: Cells) -> pa.Array:
    values = _numbers(cells)
    # PostgreSQL has no integer of one byte: tinyint is stored as smallint.
    return pa.array(values.astype(np.int16) if values.itemsize == 1 else values, mask=cells.nulls)


def _numbers(cells: Cells) -> npt.NDArray[Any]:
    wire = cells.column.record.wire
    return cells.exactly(wire.size).view(f"<{wire.number_format}")[:, 0]


def _floats(cells: Cells) -> pa.Array:
    values = _numbers(cells)
    cells.require(np.isfinite(values))
    return pa.array(values, mask=cells.nulls)


def _decimals(cells: Cells) -> pa.Array:
    type_ = cells.column.type
    cells.require((cells.sizes >= 2) & (cells.sizes <= 17))
    raw = cells.fixed(17)
    words = np.ascontiguousarray(raw[:, 1:]).view("<u8")
    cells.require(words[:, 1] < 2**63)
    return cells.buffered(pa.decimal128(type_.precision, type_.scale), _negated(words, raw[:, 0] == 0))


def _negated(words: npt.NDArray[np.uint64], negative: Nulls) -> npt.NDArray[np.uint64]:
    """Negate the 128-bit integers, stored as two words, low word first, that ``negative`` marks."""
    flipped = ~words
    flipped[:, 0] += 1
    flipped[:, 1] += flipped[:, 0] == 0
    return np.where(negative[:, None], flipped, words)


def _money(cells: Cells) -> pa.Array:
    record = cells.column.record
    raw = cells.exactly(record.wire.size)
    if record.wire.size == 8:
        halves = raw.view("<i4")
        units = halves[:, 0].astype(np.int64) << 32 | halves[:, 1].view("<u4").astype(np.int64)
    else:
        units = raw.view("<i4")[:, 0].astype(np.int64)
    words = np.stack([units, units >> 63], axis=1)
    return cells.buffered(pa.decimal128(record.facets.precision, record.facets.scale), words)


def _dates(cells: Cells) -> pa.Array:
    cells.exactly(3)
    return cells.array(_days(cells, 0).astype(np.int32), pa.date32())


def _days(cells: Cells, offset: int) -> Positions:
    """Days since 1970 of a three-byte date at ``offset``."""
    days = cells.number(3, offset)
    cells.require(days <= _LAST_DAY)
    return days + (1 - EPOCH_1970)


def _ticks_of_day(cells: Cells) -> tuple[Positions, int]:
    """Return the ticks of 100 ns of the day, and how many bytes they took."""
    scale = cells.column.type.scale
    size = time_bytes(scale)
    ticks = cells.number(size) * UNITS[scale]
    cells.require(ticks < DAY_TICKS)
    return ticks, size


def _times(cells: Cells) -> pa.Array:
    ticks, size = _ticks_of_day(cells)
    cells.exactly(size)
    return cells.array(ticks, pa.int64()) if cells.column.type.has_ticks else cells.array(ticks // 10, pa.time64("us"))


def _datetimes2(cells: Cells) -> pa.Array:
    ticks, size = _ticks_of_day(cells)
    cells.exactly(size + 3)
    if cells.column.type.has_ticks:
        return cells.array(_ticks_since_year_1(cells, size) + ticks, pa.int64())
    return cells.array(_days(cells, size) * DAY_MICROSECONDS + ticks // 10, pa.timestamp("us"))


def _ticks_since_year_1(cells: Cells, offset: int) -> Positions:
    return (_days(cells, offset) + EPOCH_1970 - 1) * DAY_TICKS


def _datetimeoffsets(cells: Cells) -> pa.Array:
    ticks, size = _ticks_of_day(cells)
    raw = cells.exactly(size + 5)
    minutes = np.ascontiguousarray(raw[:, size + 3 :]).view("<i2")[:, 0]
    cells.require(np.abs(minutes) <= 14 * 60)
    moments = cells.array(_ticks_since_year_1(cells, size) + ticks, pa.int64())
    fields = [pa.field("utc", moments.type), pa.field("minutes", pa.int16())]
    return pa.StructArray.from_arrays([moments, pa.array(minutes)], fields=fields, mask=pa.array(cells.nulls))


def _datetimes(cells: Cells) -> pa.Array:
    """To the millisecond, as SQL Server shows it: .000, .003, .007."""
    halves = cells.exactly(8).view("<i4").astype(np.int64)
    days, ticks = halves[:, 0], halves[:, 1]
    cells.require((ticks >= 0) & (ticks < DAY_TICKS_300))
    return _since_1900(cells, days, (ticks * 10 + 1) // 3)


def _smalldatetimes(cells: Cells) -> pa.Array:
    cells.exactly(4)
    return _since_1900(cells, cells.number(2), cells.number(2, 2) * 60_000)


def _since_1900(cells: Cells, days: Positions, milliseconds: Positions) -> pa.Array:
    cells.require((days + EPOCH_1900 >= 1) & (days + EPOCH_1900 <= _LAST_DAY + 1))
    moments = (days + EPOCH_1900 - EPOCH_1970) * DAY_MICROSECONDS + milliseconds * 1000
    return cells.array(moments, pa.timestamp("us"))


def _uuids(cells: Cells) -> pa.Array:
    return cells.buffered(pa.binary(16), cells.exactly(16)[:, _UUID_ORDER])


def _binaries(cells: Cells) -> pa.Array:
    return cells.buffered(pa.binary(), np.frombuffer(cells.content(), dtype=np.uint8), cells.sizes)


def _unicode(cells: Cells) -> pa.Array:
    if (cells.sizes & 1).any():
        message = f"Unicode data is odd byte size for column {cells.column.number}. Should be even byte size."
        raise SqlServerError(4895, message, state=2)
    content = cells.content()
    units = np.frombuffer(content, dtype="<u2")
    surrogate = (units >= 0xD800) & (units <= 0xDFFF)
    # UTF-8 has 1 to 3 bytes for a unit, and 4 for a pair of surrogates.
    sizes = np.where(units < 0x80, 1, np.where((units < 0x800) | surrogate, 2, 3))
    return _text(cells, content, "utf-16-le", sizes, cells.sizes // 2)


def _coded(cells: Cells) -> pa.Array:
    content = cells.content()
    if cells.column.code_page == "utf-8":
        ones = np.ones(len(content), dtype=np.int64)
        return _text(cells, content, "utf-8", ones, cells.sizes)
    sizes = _UTF8_BYTES_OF_CODE_PAGE[np.frombuffer(content, dtype=np.uint8)]
    return _text(cells, content, cells.column.code_page, sizes, cells.sizes)


def _text(cells: Cells, content: bytes, encoding: str, unit_sizes: Positions, counts: Positions) -> pa.Array:
    """``unit_sizes``: bytes in UTF-8 of each unit of ``content``; ``counts``: units of each value."""
    if encoding == "utf-8":
        data = content
    else:
        # Undefined bytes of the code page are replaced, as they are in parameters.
        try:
            data = content.decode(encoding, "strict" if encoding == "utf-16-le" else "replace").encode()
        except UnicodeDecodeError:
            return _one_by_one(cells, content, encoding, counts)
    if b"\0" in data or code_units.UTF8_PREFIX in data:
        return _one_by_one(cells, content, encoding, counts)
    ends = np.concatenate(([0], np.cumsum(unit_sizes)))
    edges = np.concatenate(([0], np.cumsum(counts)))
    array = cells.buffered(pa.string(), np.frombuffer(data, dtype=np.uint8), np.diff(ends[edges]))
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise cells.invalid() from None
    return array


def _one_by_one(cells: Cells, content: bytes, encoding: str, counts: Positions) -> pa.Array:
    """Decode texts with code units that PostgreSQL cannot hold."""
    size = 2 if encoding == "utf-16-le" else 1
    edges = np.concatenate(([0], np.cumsum(counts * size))).tolist()
    pieces = [content[start:end] for start, end in pairwise(edges)]
    texts = [code_units.from_utf16(p) if size == 2 else code_units.from_code_page(p, encoding) for p in pieces]
    return pa.array(texts, pa.string(), mask=cells.nulls)


_UTF8_BYTES_OF_CODE_PAGE = np.array(
    [len(bytes((byte,)).decode(type_info.CODE_PAGE, code_units.CODE_PAGE_ERRORS).encode()) for byte in range(256)],
    dtype=np.int64,
)
_DECODERS: dict[Packing, Callable[[Cells], pa.Array]] = {
    Packing.BIT: _bits,
    Packing.INTEGER: _integers,
    Packing.FLOAT: _floats,
    Packing.DECIMAL: _decimals,
    Packing.MONEY: _money,
    Packing.DATE: _dates,
    Packing.TIME: _times,
    Packing.DATE_TIME: _datetimes2,
    Packing.DATE_TIME_OFFSET: _datetimeoffsets,
    Packing.TICKS: _datetimes,
    Packing.MINUTES: _smalldatetimes,
    Packing.GUID: _uuids,
    Packing.UNICODE: _unicode,
    Packing.XML: _unicode,
    Packing.CODE_PAGE: _coded,
    Packing.BYTES: _binaries,
}
