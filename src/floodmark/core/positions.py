"""The kinds of positions: a stored position, and the text of one, show which kind it is."""

from __future__ import annotations

from floodmark.core.lsn import Lsn
from floodmark.core.position import Position
from floodmark.core.version import NUMBER_BYTES, Version


def read_position(value: bytes) -> Position:
    """Return a stored position. Raises ValueError for bytes that are none."""
    is_lsn = any(value[:-NUMBER_BYTES])
    return Lsn(value) if is_lsn else Version(value)


def parse_position(text: str) -> Position:
    """Return the position that a text names in the form of its kind. Raises ValueError."""
    try:
        return Version.parse(text)
    except ValueError:
        return Lsn.parse(text)
