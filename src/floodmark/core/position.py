"""Positions in the order of a source's commits: ten bytes, compared bytewise.

Each kind of source has a kind of position, which prints and parses its own form. A position of one kind is never
compared with one of another. Targets keep positions in ``__lsn``, whatever their kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

POSITION_BYTES = 10
_ZERO = bytes(POSITION_BYTES)
_LAST = b"\xff" * POSITION_BYTES


@dataclass(frozen=True, slots=True, order=True)
class Position(ABC):
    """A position. ``value`` is ten bytes, big-endian, and never zero."""

    value: bytes
    noun: ClassVar[str]
    """The word for a position of the kind, in messages."""

    def __post_init__(self) -> None:
        if len(self.value) != POSITION_BYTES:
            raise ValueError(f"a position has {POSITION_BYTES} bytes, not {len(self.value)}")
        if self.value == _ZERO:
            raise ValueError(f"0x{_ZERO.hex()} is not a position in the log")

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Return the position that a text names in the form of its kind. Raises ValueError."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the form of its kind, which ``parse`` takes."""

    def count_above(self, lower: Position) -> int | None:
        """Return the number of commits after ``lower`` up to this position; None where positions do not count them."""
        return None

    def next(self) -> Self:
        """Return the smallest position above this one. Raises OverflowError at the end of the range."""
        if self.value == _LAST:
            raise OverflowError(f"there is no position above 0x{_LAST.hex().upper()}")
        return type(self)((int.from_bytes(self.value) + 1).to_bytes(POSITION_BYTES))

    def previous(self) -> Self:
        """Return the largest position below this one. Raises ValueError for the lowest one there is."""
        return type(self)((int.from_bytes(self.value) - 1).to_bytes(POSITION_BYTES))
