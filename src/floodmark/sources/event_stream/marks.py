"""The mark of a partition: the offset of the next message, the epoch, what the last load of the table has read, and the
segments of events that are not whole.

Segments are carried in the mark, so that they move with it in one transaction of the ledger. A server writes the
segments of an event one after the other, so that a mark has those of few events (``MOST_CARRIED_BYTES``).
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from floodmark.sources.event_stream.defaults import EPOCH_SLACK
from floodmark.sources.event_stream.epochs import Epoch

MOST_CARRIED_BYTES = 16 << 20
"""The bytes of segments that a mark carries at most; those of the oldest events are beyond it."""


@dataclass(frozen=True, slots=True)
class CarriedSegment:
    """A message that is a part of an event."""

    offset: int
    met_at: datetime
    """The time in UTC at which a window has read it first."""
    body: bytes


@dataclass(frozen=True, slots=True)
class LoadedCommit:
    """The newest commit that the rows of a load of the whole table have for certain."""

    lsn: bytes
    at: datetime
    """Its commit time."""

    @classmethod
    def parse(cls, found: Sequence[str]) -> LoadedCommit:
        """Return the commit that ``to_list`` gave."""
        lsn, at = found
        return cls(bytes.fromhex(lsn), datetime.fromisoformat(at))

    def to_list(self) -> list[str]:
        """Return the fields for the ledger."""
        return [self.lsn.hex(), self.at.isoformat()]

    def covers(self, commit_lsn: bytes, committed_at: datetime) -> bool:
        """Return whether the load has read what a commit changed.

        A commit that is much newer is of another epoch, whose LSNs may be lower.
        """
        return commit_lsn <= self.lsn and committed_at <= self.at + EPOCH_SLACK


@dataclass(frozen=True, slots=True)
class PartitionMark:
    """How far a partition was read for a table."""

    next: int
    """The offset of the next message."""
    carried: tuple[CarriedSegment, ...] = ()
    lost: str = ""
    """Why a change of the table may be lost, until the table is loaded again; "" for no reason to believe so."""
    replaced: str = ""
    """Why the stream was set up again, until the table is loaded again; "" where it was not."""
    epoch: Epoch | None = None
    """The epoch of the table's events; None where none was read."""
    loaded: LoadedCommit | None = None
    """What the last load of the whole table has read; None where the stream had no event then."""
    database: str = ""
    """The database whose events were read, as the server spelled its name; "" in a mark of an earlier version."""

    @classmethod
    def parse(cls, text: str) -> PartitionMark:
        """Return the mark of a text of the ledger."""
        document = json.loads(text)
        carried = [
            CarriedSegment(offset, datetime.fromisoformat(met_at), zlib.decompress(b64decode(body)))
            for offset, met_at, body in document.get("carried", ())
        ]
        epoch = Epoch.parse(document["epoch"]) if "epoch" in document else None
        loaded = LoadedCommit.parse(document["loaded"]) if "loaded" in document else None
        lost, replaced, database = (document.get(name, "") for name in ("lost", "replaced", "database"))
        return cls(document["next"], tuple(carried), lost, replaced, epoch, loaded, database)

    def __str__(self) -> str:
        """Return the text for the ledger."""
        document: dict[str, object] = {"next": self.next}
        if self.carried:
            document["carried"] = [
                [each.offset, each.met_at.isoformat(), b64encode(zlib.compress(each.body)).decode()]
                for each in self.carried
            ]
        if self.lost:
            document["lost"] = self.lost
        if self.replaced:
            document["replaced"] = self.replaced
        if self.epoch:
            document["epoch"] = self.epoch.to_list()
        if self.loaded:
            document["loaded"] = self.loaded.to_list()
        if self.database:
            document["database"] = self.database
        return json.dumps(document)


def oldest(marks: Sequence[PartitionMark]) -> datetime | None:
    """Return the time at which the oldest carried segment was met, None where none is carried."""
    return min((each.met_at for mark in marks for each in mark.carried), default=None)
