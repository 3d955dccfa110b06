"""Positions in the order of a source's commits: ten bytes, compared bytewise.

Each kind of source has a kind of position, which prints and parses its own form. A position of one kind is never
compared with one of another. Targets keep positions in ``__lsn``, whatever their kind.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
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


# --------------------------------------------------------------------------------------------------------------------
# Log sequence numbers: positions in the log of SQL Server.
#
# Virtual log file (4 bytes), log block (4), slot (2). NULL and zero, which SQL Server returns for "nothing captured
# yet" and "unknown or not allowed", are not positions: ``read_lsn`` turns them into ``NoPosition``, so that no code
# stores or compares them by accident.


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


class NoPosition(Enum):
    """The values that a server returns in the place of a position."""

    NULL = "null"
    ZERO = "zero"


def read_lsn(value: bytes | None) -> Lsn | NoPosition:
    """Return what a server returned, as a position or as the kind of absence. Raises ValueError for a wrong length."""
    if value is None:
        return NoPosition.NULL
    if value == _ZERO:
        return NoPosition.ZERO
    return Lsn(bytes(value))


# --------------------------------------------------------------------------------------------------------------------
# Versions: positions of sources that number their commits, such as SQL Server Change Tracking.
#
# The number ``v`` of a commit, from 0, is stored as ``v + 1`` in the low six bytes. The high four bytes are those of
# the virtual log file in an LSN, which has the number 1 at least: so a stored position shows its kind
# (``core.position``).


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


# --------------------------------------------------------------------------------------------------------------------
# The kinds of positions: a stored position, and the text of one, show which kind it is.


def read_position(value: bytes) -> Position:
    """Return a stored position. Raises ValueError for bytes that are none."""
    is_lsn = any(value[:-NUMBER_BYTES])
    return Lsn(value) if is_lsn else Version(value)


def name_positions(found: Iterable[bytes]) -> str:
    """Return the positions of rows as an error has them. Behind that of a commit may be the place of a change in it."""
    return ", ".join(str(read_position(value[:POSITION_BYTES])) for value in found)


def parse_position(text: str) -> Position:
    """Return the position that a text names in the form of its kind. Raises ValueError."""
    try:
        return Version.parse(text)
    except ValueError:
        return Lsn.parse(text)


# --------------------------------------------------------------------------------------------------------------------
# Half-open intervals of the log, ``(after, to]``: the only shape in which changes and DDL are asked for.


@dataclass(frozen=True, slots=True)
class Interval:
    """All commits above ``after`` (excluded) up to ``to`` (included). Never empty."""

    after: Position
    to: Position

    def __post_init__(self) -> None:
        if not self.after < self.to:
            raise ValueError(f"an interval must advance: after {self.after} to {self.to}")

    @property
    def first(self) -> Position:
        """The lowest LSN inside, for SQL Server's functions, whose bounds are included."""
        return self.after.next()

    def __contains__(self, position: Position) -> bool:
        return self.after < position <= self.to

    def covers(self, other: Interval) -> bool:
        """True when all of ``other`` lies inside."""
        return self.after <= other.after and other.to <= self.to

    def is_followed_by(self, other: Interval) -> bool:
        """True when ``other`` begins exactly where this one ends: nothing between them, nothing twice."""
        return self.to == other.after

    def __str__(self) -> str:
        return f"({self.after}, {self.to}]"


# --------------------------------------------------------------------------------------------------------------------
# Lengths of time as text.


# The number of seconds from which on minutes, whole minutes, hours and days are written.
_MINUTES, _WHOLE_MINUTES, _HOURS, _DAYS = 120, 600, 3 * 3600, 72 * 3600


def format_duration(seconds: float) -> str:
    """Return a duration as text, as precise as necessary.

    A duration a little above a limit in minutes must not read like the limit.
    """
    whole = round(seconds)
    if whole < _MINUTES:
        return f"{whole} s"
    if whole < _WHOLE_MINUTES:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    if whole < _HOURS:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if whole < _DAYS else f"{seconds / 86_400:.1f} days"
