"""Versions: positions of sources that number their commits, such as SQL Server Change Tracking.

The number ``v`` of a commit, from 0, is stored as ``v + 1`` in the low six bytes. The high four bytes are those of the
virtual log file in an LSN, which has the number 1 at least: so a stored position shows its kind (``core.positions``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Self

from floodmark.core.position import POSITION_BYTES, Position

NUMBER_BYTES = 6
_TEXT = re.compile(r"\d{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Version(Position):
    """The number of a commit. Prints as a number."""

    noun: ClassVar[str] = "version"

    def __post_init__(self) -> None:
        super(Version, self).__post_init__()
        if any(self.value[:-NUMBER_BYTES]):
            raise ValueError(f"0x{self.value.hex().upper()} is not the position of a version")

    @classmethod
    def of(cls, number: int) -> Self:
        """Return the position of a commit. Raises ValueError below 0, OverflowError above 2^48 - 2."""
        return cls((number + 1).to_bytes(NUMBER_BYTES).rjust(POSITION_BYTES, b"\0"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the position of a number in decimal digits. Raises ValueError."""
        if match := _TEXT.fullmatch(text.strip()):
            try:
                return cls.of(int(match[0]))
            except OverflowError:
                pass
        raise ValueError(f"not a version: {text!r} (expected a number)")

    @classmethod
    def of_moment(cls, now: datetime, known: Iterable[Position]) -> Self:
        """Return the position of a moment: its milliseconds since 1970, but above those that were given before."""
        numbers = [position.number for position in known if isinstance(position, Version)]
        return cls.of(max([int(now.timestamp() * 1000), *(number + 1 for number in numbers)]))

    @property
    def number(self) -> int:
        """Return the number of the commit."""
        return int.from_bytes(self.value) - 1

    def count_above(self, lower: Position) -> int | None:
        """Return the number of commits after ``lower`` up to this version, negative where ``lower`` is above it."""
        return self.number - lower.number if isinstance(lower, Version) else None

    def __str__(self) -> str:
        return str(self.number)
