"""``Tail``: the last events of a stream, before the ends that a plan has noted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from floodmark.core.schema import TableName
from floodmark.sources.event_stream.batches import BatchDecoder
from floodmark.sources.event_stream.change import find_names
from floodmark.sources.event_stream.defaults import EPOCH_SLACK
from floodmark.sources.event_stream.envelope import Envelope
from floodmark.sources.event_stream.epochs import Epoch
from floodmark.sources.event_stream.transport import EventStream, PartitionEnds, RawMessage, StreamGapError

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
