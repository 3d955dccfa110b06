"""Members: the parts of a feed that have a position each, such as devices of a fleet or partitions of a stream.

The table has one watermark, which says when its members were examined last. Each member has a *mark*, a text that only
its kind of source reads: how far it was read, and the proof of it. Marks move with the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import Verdict


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """A message of a member that could not be read as a change."""

    place: str
    """Where it is in its member."""
    reason: str
    """It contains no value of a row."""
    body: bytes | None
    """As it was read; None where the load has kept enough of other messages."""
    topic: str = ""
    """The topic that has the member."""


@dataclass(frozen=True, slots=True)
class QuarantinedMessages:
    """The messages of a pipeline that are in quarantine."""

    reasons: tuple[tuple[str, int], ...]
    """Each reason with the number of its messages, the greatest first."""

    @property
    def count(self) -> int:
        return sum(count for _, count in self.reasons)


@dataclass(frozen=True, slots=True)
class MemberRead:
    """How one member of a table was examined by a load."""

    member: str
    before: str | None
    """Its mark before the load, for compare-and-set."""
    after: str | None = None
    """The mark to keep when the rows are published; None: the mark stays as it is."""
    is_whole: bool = False
    """Whether all of its rows were read, and not only changes: rows of the target that were not found are gone."""
    verdict: Verdict | None = None
    """Why it could not be read; None where it was, or where there is nothing to read."""
    cause: str = ""
    hint: str = ""
    quarantined: tuple[QuarantinedMessage, ...] = ()
    """The messages that were set aside."""


def member_name(table: TableName, member: str) -> TableName:
    """Return the name under which a member of a table has verdicts and alerts."""
    return TableName(f"{table.schema}.{table.name}", member)
