"""``EventReader``: a table of a plan, read from the event stream or, for a first load, from the table itself.

``EventPass`` reads several tables in one pass over the stream.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import pyarrow as pa

from floodmark.core.errors import FloodmarkError
from floodmark.core.plan import Bound, LoadChunk, LoadKind, MemberRead, TablePlan, WindowPlan, value_columns
from floodmark.core.position import Interval, Version
from floodmark.core.settings import SOURCE_VARIABLE
from floodmark.core.snapshot import LogEntry
from floodmark.sources.event_stream.envelope import parse_envelope
from floodmark.sources.event_stream.epochs import MOST_CARRIED_BYTES, PartitionMark, are_marked
from floodmark.sources.event_stream.rows import COMMITTED_AT, MASK, OPERATION, POSITION, SEQUENCE, own_columns
from floodmark.sources.event_stream.source import StreamConnection, require_primary
from floodmark.sources.event_stream.stream_pass import Found, PassState, StreamPass
from floodmark.sources.event_stream.transport import EventStream
from floodmark.sources.event_stream.values import EventFilter
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.rows import SqlServerReader, find_double_key, read_chunk_bounds
from floodmark.sync.ports import RowShape, WindowReads

_LOG = logging.getLogger(__name__)

# --------------------------------------------------------------------------------------------------------------------
# The marks of passes over different partitions of a stream, put together as one pass over all would have written them.
#
# A server writes the segments of an event into one partition, unless its stream group has no partition key. So a pass
# over some partitions nearly always has all that it needs, and the marks show where it has not.


_Marks = Mapping[str, PartitionMark]


def unite_reads(reads: Mapping[int, Sequence[MemberRead]]) -> Mapping[int, Sequence[MemberRead]] | None:
    """Return the reads of the partitions of each table, with the evidence of all of them for epochs.

    None where only one pass over all partitions can know what to do: with an event whose segments are in several, with
    one that was given up as incomplete, or with more segments than are carried.
    """
    marks = {
        number: {read.member: PartitionMark.parse(read.after) for read in found if read.after}
        for number, found in reads.items()
    }
    if any(_has_lost(found, marks[number]) or _carries_apart(marks[number]) for number, found in reads.items()):
        _LOG.info("Messages of an event are in several parts of the stream: one task reads all of it again.")
        return None
    every = [mark for found in marks.values() for mark in found.values()]
    is_marked = are_marked(mark.epoch for mark in every if mark.epoch)
    return {
        number: [_with_evidence(read, marks[number], is_marked=is_marked) for read in found]
        for number, found in reads.items()
    }


def _has_lost(reads: Iterable[MemberRead], marks: _Marks) -> bool:
    return any(
        marks[read.member].lost and not (read.before and PartitionMark.parse(read.before).lost)
        for read in reads
        if read.member in marks
    )


def _carries_apart(marks: _Marks) -> bool:
    """Return whether an event has segments in several partitions, or all segments together are too many."""
    places: dict[str, str] = {}
    carried_bytes = 0
    for member, mark in marks.items():
        for each in mark.carried:
            carried_bytes += len(each.body)
            event = each.event or parse_envelope(each.body).logical_id.text
            if places.setdefault(event, member) != member:
                return True
    return carried_bytes > MOST_CARRIED_BYTES


def _with_evidence(read: MemberRead, marks: _Marks, *, is_marked: bool) -> MemberRead:
    mark = marks.get(read.member)
    if mark is None or mark.epoch is None or mark.epoch.is_marked == is_marked:
        return read
    return replace(read, after=str(replace(mark, epoch=replace(mark.epoch, is_marked=is_marked))))


# --------------------------------------------------------------------------------------------------------------------


def open_event_reader(plan: TablePlan, end: LogEntry) -> EventReader:
    """Return the reader over the connection that the environment names."""
    connection = _connection()
    return EventReader(plan, connection.database, end, connection.open_stream())


def _connection() -> StreamConnection:
    return StreamConnection.from_json(os.environ[SOURCE_VARIABLE])


@dataclass(frozen=True)
class EventReader(SqlServerReader):
    """``sync.ports.TableReader``."""

    stream: EventStream

    @cached_property
    def _unfiltered(self) -> SqlServerReader:
        """Return the reader of all rows, with the columns that the filter reads.

        The server would compare texts by its collations, and the task compares those of events by their code points.
        One filter is applied to both.
        """
        feed = self.plan.feed
        known = {column.name for column in feed.table.columns}
        more = (column for column in feed.filtering if column.name not in known)
        table = replace(feed.table, columns=(*feed.table.columns, *more))
        settings = replace(self.plan.settings, where=None)
        return replace(self, plan=replace(self.plan, settings=settings, feed=replace(feed, table=table)))

    @cached_property
    def shape(self) -> RowShape:
        table, is_log, has_times = self.plan.feed.table, self.plan.is_log, self.plan.has_commit_times
        is_first = self.plan.kind is LoadKind.FIRST_LOAD
        return RowShape(
            key=table.key,
            own=() if is_first else own_columns(is_log=is_log, has_times=has_times),
            # The server may send no old value of a LOB: NULL in a delete is not its last value.
            values=tuple(
                replace(column, keeps_value_on_delete=False)
                for column in value_columns(table, self.plan.settings.temporal)
            ),
            order=(POSITION, *((SEQUENCE,) if is_log else ()), OPERATION),
            position=POSITION,
            operation=OPERATION,
            mask=MASK,
            sequence=SEQUENCE if is_log else "",
            committed_at=COMMITTED_AT if has_times else "",
        )

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the table between the marks and the ends of the plan."""
        for _, found in StreamPass(self.source.database, self.stream, {0: self.plan}).run():
            if isinstance(found, FloodmarkError):
                raise found
            yield found

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        batches = self._read_passing(chunk)
        if self.plan.is_log or not self.plan.has_commit_times:
            return batches
        at = pa.scalar(self._loaded_at(), pa.timestamp("us", tz="UTC"))
        return (batch.append_column(COMMITTED_AT, pa.repeat(at, batch.num_rows)) for batch in batches)

    def _read_passing(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        passing = EventFilter.of(self.plan)
        if passing is None:
            return super().read_chunk(chunk)
        names = [column.name for column in self.shape.values]
        found = SqlServerReader.read_chunk(self._unfiltered, chunk)
        return (passing.select(batch).select(names) for batch in found)

    def read_chunk_bounds(self) -> Sequence[Bound]:
        return read_chunk_bounds(self._unfiltered.plan, self.connected)

    def find_double_key(self) -> tuple[Bound, int] | None:
        with self.connected() as session:
            return find_double_key(self._unfiltered.plan, session)

    def _loaded_at(self) -> datetime | None:
        """Return the time of the commit at which a load began: the newest one in the stream, or else the plan's."""
        ends = [PartitionMark.parse(end.mark) for end in self.plan.ends if end.mark]
        if (loaded := next((mark.loaded for mark in ends if mark.loaded), None)) is not None:
            return loaded.at
        position = self.end.position
        return datetime.fromtimestamp(position.number / 1000, UTC) if isinstance(position, Version) else None

    def require_end(self, session: SourceSession) -> None:
        """Require the primary, which has every change that was streamed. A newer one comes with a later window."""
        require_primary(session, str(self.plan.source))


# --------------------------------------------------------------------------------------------------------------------
# The reads of a window: passes over the stream for all tables, each with some or all of the partitions.
#
# Segments of an event may be in several partitions, and one task joins them. A pass for each table would read all of
# the stream as often as there are tables.


MOST_CHANGES = 250_000
"""The messages up to which one task reads all partitions, and nets the changes in memory."""


@dataclass(frozen=True)
class EventPass:
    """``sync.ports.ReadTask``."""

    tables: Mapping[int, TablePlan]
    """By their places in the plan of the window."""
    database: str
    stream: EventStream
    only: frozenset[int] | None = None
    """The partitions to read; None for all."""
    changes: int | None = None
    is_net: bool = False

    def read(self) -> Iterator[Found]:
        return StreamPass(self.database, self.stream, self.tables, self.only).run()

    def count(self) -> int:
        """Return the number of messages; those of a new partition from its beginning on."""
        return sum(self._messages().values())

    def split(self, most: int) -> Sequence[EventPass]:
        """Return passes over partitions: the largest one goes to the pass with the least, and so on."""
        messages = self._messages()
        filled = sum(count > 0 for count in messages.values())
        groups: list[list[int]] = [[] for _ in range(max(min(most, filled), 1))]
        for number in sorted(messages, key=lambda each: (-messages[each], each)):
            min(groups, key=lambda group: sum(messages[each] for each in group)).append(number)
        return [replace(self, only=frozenset(group)) for group in groups] if groups[1:] else [self]

    def _messages(self) -> Mapping[int, int]:
        """Return the most messages of each partition that a table has not read."""
        found: dict[int, int] = {}
        for number, plan in self.tables.items():
            state = PassState.of(number, plan, self.stream.topic, self.only)
            for partition, end in state.ends.items():
                found[partition] = max(found.get(partition, 0), end - state.begins.get(partition, 0))
        return found


def plan_event_reads(plan: WindowPlan, most: int) -> WindowReads:
    """Return the reads of a window, over the connection that the environment names."""
    connection = _connection()
    return plan_reads(plan, most, connection.database.database, connection.open_stream())


def plan_reads(plan: WindowPlan, most: int, database: str, stream: EventStream) -> WindowReads:
    """Return the reads of a window: one pass for few messages, else at most ``most``."""
    tables = {i: each for i, each in enumerate(plan.tables) if each.interval is not None and not each.quiet}
    if not tables:
        return WindowReads([], changes=0)
    whole = EventPass(tables, database, stream)
    if (messages := whole.count()) <= MOST_CHANGES:
        return WindowReads([replace(whole, changes=messages)], changes=messages)
    passes = whole.split(most)
    return WindowReads(passes, unite_reads if passes[1:] else None, [whole])
