"""Epochs of a stream, the marks of its partitions, and the tail that a load reads back to."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeAlias

from floodmark.core.progress import Unread
from floodmark.core.schema import TableName
from floodmark.core.snapshot import MemberMark
from floodmark.sources.event_stream.change import (
    ChangeEvent,
    EventRow,
    TableForm,
    event_row,
    find_names,
    parse_change,
    table_form,
)
from floodmark.sources.event_stream.defaults import EPOCH_SLACK
from floodmark.sources.event_stream.envelope import (
    Envelope,
    EventFaultError,
    PoisonError,
    UnknownVersionError,
    parse_envelope,
)
from floodmark.sources.event_stream.rows import is_whole
from floodmark.sources.event_stream.transport import EventStream, PartitionEnds, RawMessage, StreamGapError
from floodmark.sources.event_stream.usual_form import UNUSUAL, USUAL_BYTES, UsualMessages

# --------------------------------------------------------------------------------------------------------------------
# Epochs: the times between two set-ups of a stream.
#
# A stream that was set up again lacks the changes in between, and its LSNs may begin again below the old ones. The mark
# of a partition has the epoch that was read there last. An event begins another epoch only if its commit is newer than
# all that were read of the partition, so events that come late or again never do. Two things show it: another
# identifier in ``logicalid``, or a commit LSN below the newest one (docs/reference/event_stream.md, "Epochs").


_NO_LSN = bytes(10)


Dated: TypeAlias = "EventRow | TailEvent"
"""An event, as far as it shows its epoch: by ``guid``, ``commit_lsn`` and ``committed_at``."""


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


# --------------------------------------------------------------------------------------------------------------------
# The mark of a partition: the offset of the next message, the epoch, what the last load of the table has read, and the
# segments of events that are not whole.
#
# Segments are carried in the mark, so that they move with it in one transaction of the ledger. A server writes the
# segments of an event one after the other, so that a mark has those of few events (``MOST_CARRIED_BYTES``).


MOST_CARRIED_BYTES = 16 << 20
"""The bytes of segments that a mark carries at most; those of the oldest events are beyond it."""


@dataclass(frozen=True, slots=True)
class CarriedSegment:
    """A message that is a part of an event."""

    offset: int
    met_at: datetime
    """The time in UTC at which a window has read it first."""
    body: bytes
    """Empty where values of rows must not be kept: the message is read again."""
    event: str = ""
    """The ``logicalid`` of a message without its body."""


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
            CarriedSegment(offset, datetime.fromisoformat(met_at), zlib.decompress(b64decode(body)), *event)
            for offset, met_at, body, *event in document.get("carried", ())
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
                [
                    *(each.offset, each.met_at.isoformat(), b64encode(zlib.compress(each.body)).decode()),
                    *([each.event] if each.event else []),
                ]
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


# --------------------------------------------------------------------------------------------------------------------
# ``BatchDecoder``: many messages at once, as rows by table, without an object per level of each event.


@dataclass(slots=True)
class DecodedBatch:
    """The content of some messages."""

    rows: dict[TableForm, list[EventRow]] = field(default_factory=dict)
    """The rows of each table, in the order of their messages."""
    segments: list[tuple[int, Envelope]] = field(default_factory=list)
    """The messages that are parts of events, with their places in the batch."""
    faults: list[tuple[int, PoisonError]] = field(default_factory=list)
    """The messages that cannot be read, with their places in the batch."""
    unknown: list[tuple[int, UnknownVersionError]] = field(default_factory=list)
    """The messages in other versions of the format, with their places in the batch."""

    def add_change(self, place: int, change: ChangeEvent) -> None:
        """Add a change to the rows of its table."""
        self.rows.setdefault(table_form(change), []).append(event_row(place, change))


class BatchDecoder:
    """Decodes messages. It remembers the descriptions of tables between batches."""

    def __init__(self) -> None:
        self._usual = UsualMessages()

    def decode(self, bodies: Sequence[bytes]) -> DecodedBatch:
        """Return the content of messages, with the faults of those that cannot be read."""
        batch = DecodedBatch()
        self._usual.forget_rows()
        read = self._usual.read
        for place, body in enumerate(bodies):
            try:
                if len(body) >= USUAL_BYTES:
                    raise ValueError
                head, row = read(place, body)
            except UNUSUAL:
                self._decode_unusual(batch, place, body)
                continue
            if head.rows is None:
                head.rows = batch.rows.setdefault(head.form, [])
            head.rows.append(row)
        return batch

    def _decode_unusual(self, batch: DecodedBatch, place: int, body: bytes) -> None:
        try:
            envelope = parse_envelope(body)
            if not is_whole(envelope):
                batch.segments.append((place, envelope))
                return
            batch.add_change(place, parse_change(envelope))
        except PoisonError as fault:
            batch.faults.append((place, fault))
        except UnknownVersionError as fault:
            batch.unknown.append((place, fault))
        else:
            self._usual.learn_guid(envelope.logical_id.guid)


# --------------------------------------------------------------------------------------------------------------------
# ``Tail``: the last events of a stream, before the ends that a plan has noted.


_MESSAGES = 200
"""The messages at the end of a partition that are read first."""
_MOST_MESSAGES = 100_000
"""The messages at the end of a partition that are read at most, until one is an event of the database. A change that
another one has passed by does not come later than that."""
_AHEAD = timedelta(days=1)
"""The time by which the clock of a server may be ahead. An event beyond it is damaged: all others would be older."""


class TailEvent(NamedTuple):
    """An event near the end of a partition."""

    partition: int
    table: tuple[str, str]
    """Its schema and its name, as the server spells them."""
    guid: str
    commit_lsn: bytes
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class Tail:
    """The last events of one database."""

    events: Sequence[TailEvent] = ()
    """In the order of their commit times. In an epoch, LSNs grow with them."""
    has_limit: bool = False
    """Whether the stream may have earlier events of the database, and there is none in sight."""

    @property
    def is_marked(self) -> bool:
        """Return whether two commits have the same identifier."""
        found = {each.guid: each.commit_lsn for each in self.events}
        return any(found[each.guid] != each.commit_lsn for each in self.events)

    def of_table(self, name: TableName) -> list[tuple[int, TailEvent]]:
        """Return the events of a table with their partitions. name: as the server spells it."""
        return [(each.partition, each) for each in self.events if each.table == (name.schema, name.name)]

    def newest(self, epoch: Epoch | None) -> TailEvent | None:
        """Return the event with the newest commit LSN of the last epoch, None where there is no event.

        epoch: that epoch, as far as it is known.
        """
        newest: TailEvent | None = None
        for each in self.events:
            if epoch is not None and epoch.is_after(each):
                continue
            if newest is None or each.commit_lsn >= newest.commit_lsn:
                newest = each
            elif each.committed_at - newest.committed_at > EPOCH_SLACK:
                newest = each  # another epoch has begun
        return newest


def read_tail(stream: EventStream, ends: Mapping[int, PartitionEnds], database: str) -> Tail:
    """Return the last events of a database before some ends. database: its name as the server spells it."""
    found, has_limit = [], False
    for number, end in ends.items():
        begin, high = max(end.low, end.high - _MESSAGES), end.high
        while not (events := _read_events(stream, number, (begin, high), database)) and begin > end.low:
            if end.high - begin >= _MOST_MESSAGES:
                has_limit = True
                break
            # In a topic of several databases, the last messages may all be of others.
            begin, high = max(end.low, end.high - (end.high - begin) * 4), begin
        found += events
    return Tail(sorted(found, key=lambda each: (each.committed_at, each.commit_lsn)), has_limit and not found)


def _read_events(stream: EventStream, number: int, offsets: tuple[int, int], database: str) -> list[TailEvent]:
    decoder, found, latest = BatchDecoder(), [], datetime.now(UTC) + _AHEAD
    with suppress(StreamGapError):  # removed meanwhile; a later commit is not among them
        for messages in stream.read(number, *offsets):
            for each in messages:
                for name, event in _events(decoder, number, each):
                    if name == database and event.committed_at < latest:
                        found.append(event)
    return found


def _events(decoder: BatchDecoder, number: int, message: RawMessage) -> Iterator[tuple[str, TailEvent]]:
    """Yield the event of a message with its database, if the message shows both."""
    batch = decoder.decode([message.body or b""])
    for form, rows in batch.rows.items():
        for row in rows:
            yield (
                form.database,
                TailEvent(number, (form.schema, form.table), row.guid, row.commit_lsn, row.committed_at),
            )
    for _, envelope in batch.segments:
        yield from _first_segment(number, envelope)


def _first_segment(number: int, envelope: Envelope) -> Iterator[tuple[str, TailEvent]]:
    if names := find_names(envelope.data):
        database, *table = names
        logical_id = envelope.logical_id
        yield (
            database,
            TailEvent(number, (table[0], table[1]), logical_id.guid, logical_id.commit_lsn.value, envelope.time),
        )


# --------------------------------------------------------------------------------------------------------------------
# The progress of a stream: the messages beyond the marks of tables, and the age of the oldest of them.


_PROBED = 20
"""The messages of a partition among which one with a time is searched."""


def read_unread(stream: EventStream, marks: Mapping[TableName, Sequence[MemberMark]]) -> dict[TableName, Unread]:
    """Return the unread messages of each table that has marks. Ages are by the clock of this machine."""
    if not marks:
        return {}
    ends, now = stream.read_ends(), datetime.now(UTC)
    ranges = {name: unread_ranges(found, ends) for name, found in marks.items()}
    # Tables usually have the same marks: each message is read once.
    times = {place: _time_at(stream, *place) for found in ranges.values() for place in found}
    return {
        name: _unread(found, times, now) for name, found in ranges.items() if any(each.mark for each in marks[name])
    }


Range = tuple[int, int, int]
"""A partition, the first unread message, and the end."""


def unread_ranges(marks: Sequence[MemberMark], ends: Mapping[int, PartitionEnds]) -> list[Range]:
    """Return the messages beyond the marks of a table, without partitions that have none."""
    nexts = {int(each.member): PartitionMark.parse(each.mark).next for each in marks if each.mark}
    found = [(number, max(nexts.get(number, end.low), end.low), end.high) for number, end in ends.items()]
    return [each for each in found if each[1] < each[2]]


def _time_at(stream: EventStream, partition: int, begin: int, end: int) -> datetime | None:
    """Return the commit time of the first message of a range, None where it has none or is gone."""
    try:
        for messages in stream.read(partition, begin, min(end, begin + _PROBED)):
            for each in messages:
                try:
                    return parse_envelope(each.body or b"").time
                except EventFaultError:
                    continue
    except StreamGapError:
        pass
    return None


def _unread(ranges: Sequence[Range], times: Mapping[Range, datetime | None], now: datetime) -> Unread:
    known = [at for each in ranges if (at := times[each]) is not None]
    seconds = max((now - min(known)).total_seconds(), 0.0) if known else None
    return Unread(sum(end - begin for _, begin, end in ranges), seconds if ranges else 0.0)
