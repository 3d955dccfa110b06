"""``Feed``: what the changes of a table are read from, and its identity."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from floodmark.core.position import Position
from floodmark.core.schema import SourceTable


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """The identity of a capture instance, which no successor of the same name shares.

    start_lsn is not part of it, because cleanup raises it.
    """

    name: str
    object_id: int
    created_at: datetime
    """The server's local time."""
    store_id: int = field(default=0, compare=False)
    """The number of what holds the changes, where a feed that begins again may keep all of the above; 0: not known."""

    def is_successor(self, of: InstanceIdentity) -> bool:
        """Return whether the instance has surely taken the place of another."""
        return self != of or (0 not in (self.store_id, of.store_id) and self.store_id != of.store_id)


@dataclass(frozen=True, slots=True)
class MemberMark:
    """The mark of a member in the ledger, or the mark at which a window ends in it."""

    member: str
    mark: str | None
    """None: no window with its rows has been published, or it is to be read as a whole again."""


class Feed(Protocol):
    """The changes of one table at a source: with CDC, a capture instance. Its kind of source knows more of it."""

    @property
    def identity(self) -> InstanceIdentity:
        """The identity: it differs from that of a feed that takes its place under the same name."""

    @property
    def table(self) -> SourceTable:
        """The table with the columns that are captured, and the key to merge by."""

    @property
    def delivers_net(self) -> bool:
        """Whether each read returns one change per key, and deletes have the key alone."""

    @property
    def has_members(self) -> bool:
        """Return whether the feed has members (``core.window.members``), each with a mark of its own."""

    @property
    def member_column(self) -> str:
        """The column that names the member that a row is of; "" for a feed whose rows are of no single member.

        The rows of a member that was not read before come with the changes of the others: no load of the whole table
        precedes them.
        """

    @property
    def start_lsn(self) -> Position:
        """The position from which on it has the changes."""
