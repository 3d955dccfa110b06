"""``Source``: the control queries of a source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.feed import MemberMark
from floodmark.core.source.snapshot import SourceSnapshot


class Source(Protocol):
    """The control queries of a source. ``TableReader`` reads the rows."""

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        instances: Mapping[TableName, str] | None = None,
        positions: Collection[Position] = (),
        marks: Mapping[TableName, Sequence[MemberMark]] | None = None,
        whole: Collection[TableName] = (),
    ) -> SourceSnapshot:
        """Return a snapshot. It takes two statements with constant texts, whatever the number of tables; one for none.

        instances: the capture instance of tables that have pinned one; for the others, the newest instance is read.
        positions: the positions for ``SourceSnapshot.entries``. A source may know the changes after the lowest alone
        (``TableSnapshot.changes_after``).
        marks: the marks of the members of tables, to find out whether any has changes; None: that is not asked, and no
        table is loaded as a whole by this snapshot, but those of ``whole``.
        whole: the tables that are loaded as a whole, whatever their marks are.
        """
