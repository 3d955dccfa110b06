"""Where the values of bulk-loaded rows lie: one pass over the bytes, which notes a position for each cell.

The pass is the only work done cell by cell; ``bulk_columns`` turns the positions into columns.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sqlserver_emulator.tds.reading import ProtocolError
from sqlserver_emulator.tds.rows import ROW

Positions: TypeAlias = npt.NDArray[np.int64]

NBC_ROW = 0xD2
DONE = 0xFD
_NULL_SHORT = 0xFFFF
_NULL_PLP = b"\xff" * 8
_POINTER_BYTES = 25
"""Length byte, text pointer and timestamp before the length of a text, ntext or image value."""


class Length(IntEnum):
    """How a value says its length. The old LOB types come with a text pointer, the (max) types in chunks."""

    FIXED = 0
    BYTE = 1
    SHORT = 2
    POINTER = 3
    CHUNKS = 4


_FIXED, _BYTE, _SHORT = int(Length.FIXED), int(Length.BYTE), int(Length.SHORT)
"""Plain integers for the one loop in which it matters."""


@dataclass(frozen=True, slots=True)
class Layout:
    """``size``: of a FIXED value; otherwise the largest that was announced."""

    length: Length
    size: int


@dataclass(frozen=True, slots=True)
class CellMap:
    """Rows found in ``data``. ``positions``: a row for each, a column for each cell; -1 is NULL.

    A cell of POINTER or CHUNKS has its value in ``blobs``, at the index that represents its position. ``end``: where
    what is no complete row begins. ``is_done``: there the DONE token is.
    """

    data: bytes
    positions: Positions
    blobs: list[bytes]
    end: int
    is_done: bool


def map_cells(data: bytes, layouts: Sequence[Layout]) -> CellMap:
    """Every complete row from the start of ``data``. Raises ProtocolError for what is neither row nor DONE."""
    scan = _Scan(data, layouts)
    is_done = scan.run()
    rows = np.array(scan.positions, dtype=np.int64).reshape(-1, len(layouts))
    return CellMap(data, rows, scan.blobs, scan.end, is_done)


class _Scan:
    def __init__(self, data: bytes, layouts: Sequence[Layout]) -> None:
        self._data = data
        self._lengths = [(int(layout.length), layout.size) for layout in layouts]
        self._bitmap_bytes = (len(layouts) + 7) // 8
        self.positions: list[int] = []
        self.blobs: list[bytes] = []
        self.end = 0

    def run(self) -> bool:
        data, size = self._data, len(self._data)
        while self.end < size:
            token = data[self.end]
            if token == DONE:
                return True
            if token not in (ROW, NBC_ROW):
                raise ProtocolError(f"token 0x{token:02X} among bulk-loaded rows")
            kept, kept_blobs = len(self.positions), len(self.blobs)
            try:
                at = self._row(self.end + 1) if token == ROW else self._row_with_bitmap(self.end + 1)
            except (IndexError, struct.error):
                at = size + 1
            if at > size:
                del self.positions[kept:]
                del self.blobs[kept_blobs:]
                return False
            self.end = at
        return False

    def _row(self, at: int) -> int:
        """Note the cells of a row whose first begins at ``at``; returns where the next row begins."""
        data, note = self._data, self.positions.append
        for length, size in self._lengths:
            if length == _BYTE:
                note(at)
                at += data[at] + 1
            elif length == _SHORT:
                note(at)
                count = data[at] | data[at + 1] << 8
                at += 2 if count == _NULL_SHORT else count + 2
            elif length == _FIXED:
                note(at)
                at += size
            else:
                at = self._blob(at, length)
        return at

    def _row_with_bitmap(self, at: int) -> int:
        bitmap = int.from_bytes(self._data[at : at + self._bitmap_bytes], "little")
        at += self._bitmap_bytes
        lengths = self._lengths
        for number, length in enumerate(lengths):
            if bitmap >> number & 1:
                self.positions.append(-1)
                continue
            self._lengths = [length]
            at = self._row(at)
        self._lengths = lengths
        return at

    def _blob(self, at: int, length: int) -> int:
        value, at = self._pointed(at) if length == Length.POINTER else self._chunks(at)
        self.positions.append(-1 if value is None else len(self.blobs))
        if value is not None:
            self.blobs.append(value)
        return at

    def _pointed(self, at: int) -> tuple[bytes | None, int]:
        data = self._data
        if data[at] == 0:
            return None, at + 1
        start = at + _POINTER_BYTES + 4
        (size,) = struct.unpack_from("<I", data, start - 4)
        return data[start : start + size], start + size

    def _chunks(self, at: int) -> tuple[bytes | None, int]:
        data = self._data
        if data[at : at + 8] == _NULL_PLP:
            return None, at + 8
        at += 8
        chunks: list[bytes] = []
        while True:
            (size,) = struct.unpack_from("<I", data, at)
            at += 4
            if size == 0:
                return b"".join(chunks), at
            chunks.append(data[at : at + size])
            at += size
