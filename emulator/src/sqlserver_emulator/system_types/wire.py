"""How a system type travels in TDS: the tokens of TYPE_INFO, and how a value is packed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Form(Enum):
    """The part of TYPE_INFO after the token, which also decides how a value gives its length."""

    BARE = auto()
    """Nothing."""
    SIZED = auto()
    """The bytes of a value. Several types share a token and differ in the size."""
    SCALED = auto()
    """The digits of a second's fraction."""
    DECIMAL = auto()
    """Size, precision and scale."""
    SHORT = auto()
    """The longest value in two bytes, and the collation of a character type."""
    LONG = auto()
    """The longest value in four bytes; values have a text pointer."""
    XML = auto()
    """Whether there is a schema collection. Values come in chunks."""
    VARIANT = auto()
    """The longest value in four bytes; each value says its own type."""


class Packing(Enum):
    """How a value is packed into bytes, and with it the Python type that the emulator has for it.

    Every coder of ``tds`` has a table with an entry for each of these that it can meet. A new type that is packed like
    another one needs no code there.
    """

    BIT = auto()
    INTEGER = auto()
    FLOAT = auto()
    DECIMAL = auto()
    MONEY = auto()
    """An integer of ten-thousandths, in eight bytes (the high half first) or four."""
    DATE = auto()
    """Days since year 1."""
    TIME = auto()
    """Units of the declared fraction since midnight."""
    DATE_TIME = auto()
    """Time, then date."""
    DATE_TIME_OFFSET = auto()
    """Time and date in UTC, then the minutes of the offset."""
    TICKS = auto()
    """Days since 1900 and 1/300 seconds."""
    MINUTES = auto()
    """Days since 1900 and minutes."""
    GUID = auto()
    UNICODE = auto()
    CODE_PAGE = auto()
    BYTES = auto()
    XML = auto()
    VARIANT = auto()


@dataclass(frozen=True, slots=True)
class Wire:
    """A type in TYPE_INFO."""

    form: Form
    packing: Packing
    token: int
    """The token of the nullable type, which is the one that the emulator sends."""
    size: int = 0
    """SIZED: the bytes of a value. LONG and VARIANT: the longest value that is announced."""
    number_format: str = ""
    """The value as a number of ``struct``, where it is one."""
    fixed_token: int | None = None
    """The token of the type that cannot be NULL."""
    older_tokens: tuple[int, ...] = ()
    """Tokens of TDS 4, which clients may still send."""
    announced_as: str = ""
    """The type whose token this one borrows: what comes from a client with it is of that type."""
