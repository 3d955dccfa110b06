"""Log sequence numbers: positions in the source's log.

Ten bytes, big-endian, ordered bytewise: virtual log file (4), log block (4), slot (2). NULL and zero, which SQL Server
returns for "nothing captured yet" and "unknown or not allowed", are not positions: ``read_lsn`` turns them into
``LsnAbsence`` so that nobody can store or compare them by accident.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

LSN_BYTES = 10
_ZERO = bytes(LSN_BYTES)
_LAST = b"\xff" * LSN_BYTES
_HEX = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{20})")
_COLONS = re.compile(r"([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{4})")


@dataclass(frozen=True, slots=True, order=True)
class Lsn:
    """A position. ``value`` is ten bytes and never zero. Prints as 0x and 20 upper-case hexadecimal digits."""

    value: bytes

    def __post_init__(self) -> None:
        if len(self.value) != LSN_BYTES:
            raise ValueError(f"an LSN has {LSN_BYTES} bytes, not {len(self.value)}")
        if self.value == _ZERO:
            raise ValueError("0x00000000000000000000 is not a position in the log")

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """From 0x… or bare 20 hex digits, or 0000002D:00000580:001D. Raises ValueError."""
        stripped = text.strip()
        if match := _HEX.fullmatch(stripped):
            return cls(bytes.fromhex(match[1]))
        if match := _COLONS.fullmatch(stripped):
            return cls(bytes.fromhex("".join(match.groups())))
        raise ValueError(f"not an LSN: {text!r} (expected 0x and 20 hexadecimal digits, or 0000002D:00000580:001D)")

    def next(self) -> Lsn:
        """The smallest position above this one. Raises OverflowError at the end of the range."""
        if self.value == _LAST:
            raise OverflowError("there is no LSN above 0xFFFFFFFFFFFFFFFFFFFF")
        return Lsn((int.from_bytes(self.value) + 1).to_bytes(LSN_BYTES))

    def previous(self) -> Lsn:
        """The largest position below this one. Raises ValueError for the lowest one there is."""
        return Lsn((int.from_bytes(self.value) - 1).to_bytes(LSN_BYTES))

    def __str__(self) -> str:
        return f"0x{self.value.hex().upper()}"


class LsnAbsence(Enum):
    """What stands where a position was asked for."""

    NULL = "null"
    ZERO = "zero"


def read_lsn(value: bytes | None) -> Lsn | LsnAbsence:
    """What a server returned, as a position or as the kind of absence. Raises ValueError for a wrong length."""
    if value is None:
        return LsnAbsence.NULL
    if value == _ZERO:
        return LsnAbsence.ZERO
    return Lsn(bytes(value))
