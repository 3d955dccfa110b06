"""Change rows: their operation, and the columns that they changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum


class Operation(IntEnum):
    """The values of ``__$operation``, and ``MOVED``."""

    DELETE = 1
    INSERT = 2
    BEFORE_UPDATE = 3
    UPDATE = 4
    MERGE = 5
    """Only in net changes with ``all with merge``: an insert or an update."""
    MOVED = 6
    """Floodmark's own: an UPDATE that gave the row another key. The server writes 4 for it (``spark.statements``)."""


def bits_by_byte(ordinals: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the bytes of an update mask, and their bits, that show whether one of the ordinals is set.

    Each pair is the position of a byte, 0 for the last one, and its bits.
    """
    bits: dict[int, int] = {}
    for ordinal in ordinals:
        byte, bit = divmod(ordinal - 1, 8)
        bits[byte] = bits.get(byte, 0) | 1 << bit
    return tuple(sorted(bits.items()))


def is_changed(mask: bytes, ordinal: int) -> bool:
    """Return whether the bit of a column is set in an update mask.

    ordinal: 1-based, of the capture instance. The bits are counted from the right: ordinal 1 is the lowest bit of the
    last byte (docs/reference/sqlserver_cdc.md, "Update mask"). An ordinal beyond the mask is not set.
    """
    byte, bit = divmod(ordinal - 1, 8)
    return byte < len(mask) and bool(mask[len(mask) - 1 - byte] >> bit & 1)


def changed_ordinals(mask: bytes) -> Iterator[int]:
    """Return the ordinals that are set in an update mask, ascending."""
    bits = int.from_bytes(mask)
    return (ordinal for ordinal in range(1, len(mask) * 8 + 1) if bits >> (ordinal - 1) & 1)
