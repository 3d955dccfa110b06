"""The rows of a change table: which rows one logged change becomes, their masks, and their bytes for COPY BINARY. Pure.

Owns the shapes of docs/reference/sqlserver_cdc.md: "Row shapes" (what a statement writes), "Update mask" and "Types"
(which values are NULL). Positions, transactions and tables are ``capture``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter, ne
from struct import Struct

from sqlserver_emulator.cdc.log.pgoutput import NULL_FIELD, Fields
from sqlserver_emulator.system_types import names_where

DELETE, INSERT, UPDATE_OLD, UPDATE_NEW = 1, 2, 3, 4
"""__$operation."""

LEGACY_LOB_TYPES = names_where(lambda type: type.is_legacy_lob)

# The signature, then four bytes of flags and four of the extension's length, all zero.
COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
# A count of -1 fields ends COPY BINARY.
COPY_TRAILER = b"\xff\xff"

_SYSTEM_COLUMNS = 6
# The count of fields, `__$start_lsn` with its length, and `__$end_lsn`, which is NULL: the length -1.
_ROW_START = Struct(">hi10si")
_OPERATION_AND_MASK_LENGTH = Struct(">iii")
_COMMAND_ID = Struct(">ii")
_LSN_LENGTH = (10).to_bytes(4, "big")
_ABSENT = -1
"""Index of the NULL that is appended to every row's fields."""


@dataclass(frozen=True, slots=True)
class CapturedColumn:
    """One captured column. ``ordinal`` counts from 1 in the instance; ``type_name`` is the declared T-SQL type.

    source_name: its name in PostgreSQL, or None when nothing can come from the source: computed, or dropped there.
    is_null_in_deletes: a fault on demand.
    """

    name: str
    column_id: int
    ordinal: int
    type_name: str
    is_max: bool
    source_name: str | None
    is_null_in_deletes: bool = False


def mask_bytes(ordinals: Collection[int], column_count: int) -> bytes:
    """Return the update mask with the bits of ``ordinals`` set: ordinal 1 is the lowest bit of the last byte."""
    value = sum(1 << (ordinal - 1) for ordinal in ordinals)
    return value.to_bytes((column_count + 7) // 8, "big")


def row_start(column_count: int, commit_lsn: bytes) -> bytes:
    """Return the first bytes of a transaction's rows in a change table, up to and including the length of __$seqval."""
    return _ROW_START.pack(_SYSTEM_COLUMNS + column_count, 10, commit_lsn, -1) + _LSN_LENGTH


class InstanceRows:
    """How one capture instance writes the changes of its table, for one shape of the table in the log."""

    def __init__(self, columns: Sequence[CapturedColumn], relation_columns: Sequence[str]) -> None:
        """``relation_columns``: the names of the columns that logged rows have, in their order."""
        at = {name: index for index, name in enumerate(relation_columns)}
        self.column_count = len(columns)
        self._columns = columns
        self._places = [_ABSENT if c.source_name is None else at.get(c.source_name, _ABSENT) for c in columns]
        self._ordinal_at = {place: c.ordinal for place, c in zip(self._places, columns, strict=True) if place >= 0}
        full = mask_bytes([c.ordinal for c in columns], self.column_count)
        self._insert_head = _head(INSERT, full)
        self._delete_head = _head(DELETE, full)
        self._take = _taker(self._places)
        # docs/reference/sqlserver_cdc.md, "Types": a delete has text, ntext and image as NULL.
        deleted = [
            _ABSENT if c.type_name in LEGACY_LOB_TYPES or c.is_null_in_deletes else place
            for place, c in zip(self._places, columns, strict=True)
        ]
        self._take_deleted = _taker(deleted)
        self._update_plans: dict[tuple[int, ...], tuple[bytes, bytes, Callable[[Fields], Sequence[bytes]]] | None] = {}

    def insert(self, start: bytes, sequence: bytes, command_id: int, row: Fields) -> bytes:
        """Return the row of operation 2."""
        take = self._take(row)
        return b"".join((start, sequence, self._insert_head, *take, _COMMAND_ID.pack(4, command_id)))

    def delete(self, start: bytes, sequence: bytes, command_id: int, row: Fields) -> bytes:
        """Return the row of operation 1."""
        take = self._take_deleted(row)
        return b"".join((start, sequence, self._delete_head, *take, _COMMAND_ID.pack(4, command_id)))

    def update(
        self, start: bytes, sequence: bytes, command_id: int, rows: tuple[Fields, Fields], *, changed: tuple[int, ...]
    ) -> bytes:
        """Return the pair of an update in place; empty when no captured column changed.

        ``rows``: the old and the new one; ``changed``: where they differ.
        """
        # A table's statements change few different sets of columns, so the plan is made once for each.
        if changed not in self._update_plans:
            self._update_plans[changed] = self._plan_update(changed)
        plan = self._update_plans[changed]
        if plan is None:
            return b""
        old_head, new_head, take_old = plan
        tail = _COMMAND_ID.pack(4, command_id)
        before, after = take_old(rows[0]), self._take(rows[1])
        return b"".join((start, sequence, old_head, *before, tail, start, sequence, new_head, *after, tail))

    def _plan_update(self, changed: tuple[int, ...]) -> tuple[bytes, bytes, Callable[[Fields], Sequence[bytes]]] | None:
        ordinals = {self._ordinal_at[place] for place in changed if place in self._ordinal_at}
        if not ordinals:
            return None
        mask = mask_bytes(ordinals, self.column_count)
        shown = [
            # docs/reference/sqlserver_cdc.md, "Types": the image before has no text, ntext or image, and a (max) value
            # only where it changed.
            _ABSENT if c.type_name in LEGACY_LOB_TYPES or (c.is_max and c.ordinal not in ordinals) else place
            for place, c in zip(self._places, self._columns, strict=True)
        ]
        return _head(UPDATE_OLD, mask), _head(UPDATE_NEW, mask), _taker(shown)


def changed_places(old: Fields, new: Fields) -> tuple[int, ...]:
    """Return the places where two rows of one table differ."""
    if old == new:
        return ()
    return tuple(place for place, differs in zip(count(), map(ne, old, new)) if differs)


def _head(operation: int, mask: bytes) -> bytes:
    return _OPERATION_AND_MASK_LENGTH.pack(4, operation, len(mask)) + mask


def _taker(places: Sequence[int]) -> Callable[[Fields], Sequence[bytes]]:
    """A function that picks the fields at ``places`` in order; _ABSENT gives NULL."""
    # With one place itemgetter returns the value itself, not a tuple.
    if len(places) == 1:
        place = places[0]
        return lambda fields: (NULL_FIELD if place == _ABSENT else fields[place],)
    pick: Callable[[Fields], Sequence[bytes]] = itemgetter(*places)
    if _ABSENT not in places:
        return pick
    # _ABSENT is the index -1: the NULL at the end.
    return lambda fields: pick([*fields, NULL_FIELD])
