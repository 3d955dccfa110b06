"""A statement that assigns key columns: its rows wait here until it has ended, and are then put in order. Pure.

Such a statement is carried out as deletes and inserts (docs/reference/sqlserver_cdc.md, "Row shapes"). As long as no
row takes over a key that another row of the statement gives up, each row is a pair of its own. Otherwise (SET id = id +
1, two keys swapped) all deletes come before all inserts: a reader that applies the changes one after another never
meets a key twice, and never deletes a row that has just come. The form of the changes is ``row_changes``'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Generic, TypeVar

from sqlserver_emulator.cdc.log import pgoutput
from sqlserver_emulator.cdc.log.pgoutput import Fields
from sqlserver_emulator.cdc.log.reader import PAYLOAD_AT
from sqlserver_emulator.cdc.lsn import FIRST_ROW_SLOT

_ShapeT = TypeVar("_ShapeT")


@dataclass(frozen=True, slots=True)
class HeldRow(Generic[_ShapeT]):
    """One row as logged: its table's ``shape``, and its place (``position``, ``slot``) in the log."""

    kind: int
    shape: _ShapeT
    position: int
    slot: int
    message: bytes

    def images(self) -> tuple[Fields | None, Fields | None]:
        """Return the old and the new row; None where there is none."""
        if self.kind == pgoutput.UPDATE:
            return pgoutput.read_row_pair(self.message, PAYLOAD_AT)
        row = pgoutput.read_row(self.message, PAYLOAD_AT)
        return (None, row) if self.kind == pgoutput.INSERT else (row, None)


@dataclass(slots=True)
class Deferral(Generic[_ShapeT]):
    """A statement that assigns key columns of a table (logical message ``deferred``), from here to the next message.

    A MERGE is always carried out as delete and insert (``is_certain``), an UPDATE when it has several rows or the key
    really changes.
    """

    object_id: int
    is_certain: bool
    held: list[HeldRow[_ShapeT]] = field(default_factory=list)

    def take_held(self) -> list[HeldRow[_ShapeT]]:
        """Return the rows that wait, and hold none."""
        held, self.held = self.held, []
        return held


def takes_over_keys(rows: Sequence[HeldRow[_ShapeT]], keys: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a row takes a key that another one leaves. ``keys``: where each unique key is in a row."""
    for places in keys:
        key_of = itemgetter(*places)
        left: set[object] = set()
        reached: set[object] = set()
        for row in rows:
            old, new = row.images()
            # A row that keeps its key neither leaves one nor takes one.
            if old is None or new is None or key_of(old) != key_of(new):
                left.update([] if old is None else [key_of(old)])
                reached.update([] if new is None else [key_of(new)])
        if not left.isdisjoint(reached):
            return True
    return False


def spread_places(rows: Sequence[HeldRow[_ShapeT]]) -> Iterator[tuple[int, int]]:
    """Yield two places of the log for each row, in ascending order: rows have one, which has room for two."""
    for row in rows:
        # The slots of a record's rows are doubled: that keeps their order and leaves a second place behind each.
        first = FIRST_ROW_SLOT + 2 * (row.slot - FIRST_ROW_SLOT)
        yield row.position, first
        yield row.position, first + 1
