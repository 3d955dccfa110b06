"""Epochs: the times between two set-ups of a stream.

A stream that was set up again lacks the changes in between, and its LSNs may begin again below the old ones. The mark
of a partition has the epoch that was read there last. An event begins another epoch only if its commit is newer than
all that were read of the partition, so events that come late or again never do. Two things show it: another identifier
in ``logicalid``, or a commit LSN below the newest one (docs/reference/event_stream.md, "Epochs").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from floodmark.sources.event_stream.defaults import EPOCH_SLACK

_NO_LSN = bytes(10)


class Dated(Protocol):
    """An event, as far as it shows its epoch."""

    @property
    def guid(self) -> str: ...

    @property
    def commit_lsn(self) -> bytes: ...

    @property
    def committed_at(self) -> datetime: ...


@dataclass(slots=True)
class Epoch:
    """The events of a table that a partition had between two set-ups of its stream."""

    guid: str
    """The identifier in ``logicalid``."""
    lsn: bytes
    """The newest commit LSN."""
    at: datetime
    """The newest commit time."""
    begins_at: datetime | None = None
    """The commit time of its first event; None for the first epoch that was read. Older events come late, and the load
    that followed has what they changed."""
    is_marked: bool = False
    """Whether two commits had the same identifier. Until then it may be another one in each message, and shows
    nothing."""
    is_named: bool = False
    """Whether the epoch before had another identifier. Then an event with this one is never older: the clock of the
    server may have been set back since."""
    steps_back: bool = False
    """Whether its LSNs begin below those of the epoch before: the log of the database went back, for all tables."""

    @classmethod
    def parse(cls, found: Sequence[str | bool | None]) -> Epoch:
        """Return the epoch that ``to_list`` gave."""
        guid, lsn, at, begins_at, is_marked, *later = found
        begin = datetime.fromisoformat(str(begins_at)) if begins_at else None
        newest = bytes.fromhex(str(lsn)), datetime.fromisoformat(str(at))
        is_named, steps_back = (*map(bool, later), False, False)[:2]
        return cls(str(guid), *newest, begin, bool(is_marked), is_named, steps_back)

    def to_list(self) -> list[str | bool | None]:
        """Return the fields for the ledger."""
        begin = self.begins_at.isoformat() if self.begins_at else None
        flags = [self.is_marked, self.is_named, self.steps_back]
        return [self.guid, self.lsn.hex(), self.at.isoformat(), begin, *flags]

    def is_before(self, event: Dated) -> bool:
        """Return whether an event is of a later epoch."""
        if event.committed_at <= self.at:
            return False
        return (self.is_marked and event.guid != self.guid) or self.is_above(event)

    def is_above(self, event: Dated) -> bool:
        """Return whether the LSN of an event steps back, although its commit is newer than all of the epoch."""
        return event.commit_lsn < self.lsn and event.committed_at - self.at > EPOCH_SLACK

    def is_after(self, event: Dated) -> bool:
        """Return whether an event is of an earlier epoch, as far as anything shows it."""
        if self.begins_at is None or event.committed_at >= self.begins_at:
            return False
        return not (self.is_named and event.guid == self.guid)

    def take(self, event: Dated) -> None:
        """Add an event."""
        if event.guid == self.guid:
            self.is_marked = self.is_marked or self.lsn not in (event.commit_lsn, _NO_LSN)
        elif event.committed_at > self.at:
            self.guid = event.guid
        self.lsn, self.at = max(self.lsn, event.commit_lsn), max(self.at, event.committed_at)


def begin_epoch(event: Dated, begins_at: datetime | None = None) -> Epoch:
    """Return the epoch of a first event."""
    return Epoch(event.guid, event.commit_lsn, event.committed_at, begins_at)


@dataclass(slots=True)
class EpochWatch:
    """The epochs of a table in one partition during a pass."""

    known: Epoch | None = None
    """The one of the mark, with what the pass has read of it."""
    later: Epoch | None = None
    """The one that has begun in this pass."""
    newest: Epoch | None = None
    """The newest LSN and the newest time that all tables of the pipeline had in any partition before the pass."""

    def belongs(self, event: Dated) -> bool:
        """Take an event. Return whether it is of the epoch of the mark."""
        known, later = self.known, self.later
        if known is None:
            self.known = begin_epoch(event)
        elif known.is_after(event):
            return False
        elif later is not None and event.committed_at >= (later.begins_at or later.at):
            later.take(event)
            return False
        elif known.is_before(event) or (self.newest and self.newest.is_above(event)):
            self.begin(event, steps_back=any(each.is_above(event) for each in (known, self.newest) if each))
            return False
        else:
            known.take(event)
        return True

    def begin(self, event: Dated, *, steps_back: bool) -> None:
        """Begin another epoch, unless one has begun. steps_back: the log of the database went back."""
        if self.later is None:
            self.later = begin_epoch(event, event.committed_at)
            self.later.is_named = self.known is not None and event.guid != self.known.guid
            self.later.steps_back = steps_back

    def is_older(self, event: Dated) -> bool:
        """Return whether an event that does not belong is older than the epoch of the mark."""
        return self.known is not None and self.known.is_after(event)


def are_marked(epochs: Iterable[Epoch]) -> bool:
    """Return whether two commits had the same identifier, in whatever tables and partitions."""
    lsns: dict[str, bytes] = {}
    return any(
        each.is_marked or (each.lsn != _NO_LSN and lsns.setdefault(each.guid, each.lsn) != each.lsn) for each in epochs
    )


def newest_of(epochs: Collection[Epoch]) -> Epoch | None:
    """Return the newest LSN and the newest time of epochs as one, None for no epochs."""
    newest = max(epochs, key=lambda each: each.at, default=None)
    return newest and replace(newest, lsn=max(each.lsn for each in epochs))


def missed_epoch(own: Iterable[Epoch], every: Iterable[Epoch]) -> Epoch | None:
    """Return the last epoch for which the log of the database went back, if a table has not begun it.

    own: of the table. every: of all tables of the pipeline. A restore counts for all tables: the LSNs of a table may
    be above its own old ones again when its next event comes.
    """
    begun = max((each.begins_at for each in own if each.begins_at), default=None)
    back = [(each.begins_at, each) for each in every if each.steps_back and each.begins_at]
    begins_at, last = max(back, key=lambda each: each[0], default=(None, None))
    return last if begins_at and (begun is None or begun < begins_at) else None


def epochs_of_partitions(known: Mapping[int, Epoch | None], partitions: Iterable[int]) -> Mapping[int, Epoch | None]:
    """Return the epoch with which a pass begins in each partition.

    known: of the marks. A partition that had no event of the table has the epoch of the others: a server chooses the
    partition by an identifier too, so that another epoch may begin there.
    """
    newest = max((each for each in known.values() if each is not None), key=lambda each: each.at, default=None)
    return {number: known.get(number) or (replace(newest, lsn=_NO_LSN) if newest else None) for number in partitions}


def epochs_of_load(
    known: Iterable[Epoch],
    own: Sequence[tuple[int, Dated]],
    partitions: Iterable[int],
    missed: Epoch | None = None,
    *,
    is_marked: bool,
) -> Mapping[int, Epoch]:
    """Return the epoch with which each partition begins after a load of the whole table; none where it is unknown.

    known: of the marks. own: the last events of the table, with their partitions. missed: see ``missed_epoch``.
    is_marked: whether two commits with the same identifier were seen.
    """
    events = sorted(own, key=lambda each: each[1].committed_at)
    newest = max(known, key=lambda each: each.at, default=None)
    base = newest or (begin_epoch(events[0][1]) if events else missed)
    if base is None:
        return {}
    watch = EpochWatch(replace(base, is_marked=base.is_marked or is_marked))
    for _, event in events:
        watch.belongs(event)
    base = watch.later or watch.known or base
    base.is_marked = base.is_marked or is_marked
    if missed is not None:
        base = replace(base, begins_at=missed.begins_at, is_named=False, steps_back=True)
    lsns = dict.fromkeys(partitions, _NO_LSN)
    for number, event in events:
        if number in lsns and not base.is_after(event):
            lsns[number] = max(lsns[number], event.commit_lsn)
    return {number: replace(base, lsn=lsn) for number, lsn in lsns.items()}
