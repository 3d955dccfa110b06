"""``Source``: the control queries of a source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import SourceSnapshot


class Source(Protocol):
    """The control queries. The rows themselves are read by ``floodmark.spark``."""

    def read_snapshot(
        self, tables: Sequence[TableName], instances: Mapping[TableName, str] | None = None,
        positions: Collection[Lsn] = (),
    ) -> SourceSnapshot:  # fmt: skip
        """At most two statements, whatever the number of tables, with constant texts.

        instances: the capture instance to look at, for tables that have pinned one; of the others, the newest.
        positions: what ``SourceSnapshot.entries`` is to tell of.
        """
