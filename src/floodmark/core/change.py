"""Change rows: what happened, and to which columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum


class Operation(IntEnum):
    """``__$operation``. MERGE: of net changes with ``all with merge`` only, an insert or an update.

    MOVED is ours: an UPDATE that gave the row another key. The server writes 4 for it (``spark.statements``).
    """

    DELETE = 1
    INSERT = 2
    BEFORE_UPDATE = 3
    UPDATE = 4
    MERGE = 5
    MOVED = 6


def bits_by_byte(ordinals: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """What to look at in an update mask to learn whether one of these ordinals is set: pairs of a byte's place, 0 for
    the last, and the bits of it."""
    bits: dict[int, int] = {}
    for ordinal in ordinals:
        byte, bit = divmod(ordinal - 1, 8)
        bits[byte] = bits.get(byte, 0) | 1 << bit
    return tuple(sorted(bits.items()))


def is_changed(mask: bytes, ordinal: int) -> bool:
    """Whether the bit of a column is set in an update mask. ordinal: 1-based, of the capture instance.

    The bits are counted from the right: ordinal 1 is the lowest bit of the last byte (docs/reference/sqlserver_cdc.md,
    "Update mask"). An ordinal beyond the mask is not set.
    """
    byte, bit = divmod(ordinal - 1, 8)
    return byte < len(mask) and bool(mask[len(mask) - 1 - byte] >> bit & 1)


def changed_ordinals(mask: bytes) -> Iterator[int]:
    """Those that are set, ascending."""
    bits = int.from_bytes(mask)
    return (ordinal for ordinal in range(1, len(mask) * 8 + 1) if bits >> (ordinal - 1) & 1)
