"""``Feed``: what the changes of a table are read from."""

from __future__ import annotations

from typing import Protocol

from floodmark.core.lsn import Lsn
from floodmark.core.schema import SourceTable
from floodmark.core.source.snapshot import InstanceIdentity


class Feed(Protocol):
    """The changes of one table at a source: with CDC, a capture instance. Its kind of source knows more of it."""

    @property
    def identity(self) -> InstanceIdentity:
        """The identity: it differs from that of a feed that takes its place under the same name."""

    @property
    def table(self) -> SourceTable:
        """The table with the columns that are captured, and the key to merge by."""

    @property
    def start_lsn(self) -> Lsn:
        """The position from which on it has the changes."""
