"""Log sequence numbers: positions in the log of SQL Server.

Virtual log file (4 bytes), log block (4), slot (2). NULL and zero, which SQL Server returns for "nothing captured yet"
and "unknown or not allowed", are not positions: ``read_lsn`` turns them into ``LsnAbsence``, so that no code stores or
compares them by accident.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from floodmark.core.position import POSITION_BYTES, Position

_ZERO = bytes(POSITION_BYTES)
_FILE_BYTES = 4
_HEX = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{20})")
_COLONS = re.compile(r"([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{4})")


@dataclass(frozen=True, slots=True, order=True)
class Lsn(Position):
    """The position of a commit. Prints as 0x and 20 upper-case hexadecimal digits."""

    noun: ClassVar[str] = "LSN"

    def __post_init__(self) -> None:
        super(Lsn, self).__post_init__()
        # Virtual log files are counted from 1. Other kinds of positions have zeros there.
        if not any(self.value[:_FILE_BYTES]):
            raise ValueError(f"0x{self.value.hex().upper()} is not an LSN: its virtual log file is 0")

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Return the LSN of 0x… or bare 20 hex digits, or of 0000002D:00000580:001D. Raises ValueError."""
        stripped = text.strip()
        if match := _HEX.fullmatch(stripped):
            return cls(bytes.fromhex(match[1]))
        if match := _COLONS.fullmatch(stripped):
            return cls(bytes.fromhex("".join(match.groups())))
        raise ValueError(f"not an LSN: {text!r} (expected 0x and 20 hexadecimal digits, or 0000002D:00000580:001D)")

    def __str__(self) -> str:
        return f"0x{self.value.hex().upper()}"


class LsnAbsence(Enum):
    """The values that a server returns in the place of a position."""

    NULL = "null"
    ZERO = "zero"


def read_lsn(value: bytes | None) -> Lsn | LsnAbsence:
    """Return what a server returned, as a position or as the kind of absence. Raises ValueError for a wrong length."""
    if value is None:
        return LsnAbsence.NULL
    if value == _ZERO:
        return LsnAbsence.ZERO
    return Lsn(bytes(value))
