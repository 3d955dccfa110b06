"""``EventReader``: a table of a plan, read from the event stream or, for a first load, from the table itself.

The partitions are read one after the other, each from its mark to the end that was planned. The segments of an event
may be in several partitions, so all of them go to one joiner. What is not whole at the end is carried in the marks.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

import pyarrow as pa

from floodmark.core.errors import UnknownFormatError, WindowExpiredError
from floodmark.core.interval import Interval
from floodmark.core.job_variables import SOURCE_VARIABLE
from floodmark.core.source.history import LogEntry
from floodmark.core.source.snapshot import Verdict
from floodmark.core.window.columns import value_columns
from floodmark.core.window.members import MemberRead, QuarantinedMessage
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.sources.event_stream.batches import BatchDecoder, DecodedBatch
from floodmark.sources.event_stream.change import parse_change
from floodmark.sources.event_stream.connection import StreamConnection
from floodmark.sources.event_stream.envelope import parse_envelope
from floodmark.sources.event_stream.faults import PoisonError, UnknownVersionError
from floodmark.sources.event_stream.joining import FaultyGroup, JoinedEvent, Outcome, SegmentJoiner, StreamMessage
from floodmark.sources.event_stream.marks import MOST_CARRIED_BYTES, CarriedSegment, PartitionMark
from floodmark.sources.event_stream.rows import EventRow, TableForm, event_row, table_form
from floodmark.sources.event_stream.table_rows import MASK, OPERATION, OWN_COLUMNS, POSITION, BadRow, TableRows
from floodmark.sources.event_stream.transport import EventStream, RawMessage, StreamGapError
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.rows.reader import SqlServerReader
from floodmark.sync.ports.members import attach_members
from floodmark.sync.ports.reader import RowShape

_LOG = logging.getLogger(__name__)
SEGMENTS_WITHIN = timedelta(hours=1)
"""The time within which all segments of an event must arrive."""
_CHUNK_MESSAGES = 5_000
_CHUNK_BYTES = 8 << 20
_MOST_BODIES_BYTES = 16 << 20
"""The bytes of messages in quarantine that one read keeps."""
_TABLE = re.compile(r'"schema"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"tbl"\s*:\s*"((?:[^"\\]|\\.)*)"')


def open_event_reader(plan: TablePlan, end: LogEntry) -> EventReader:
    """Return the reader over the connection that the environment names."""
    connection = StreamConnection.from_json(os.environ[SOURCE_VARIABLE])
    return EventReader(plan, connection.database, end, connection.open_stream())


@dataclass(frozen=True)
class EventReader(SqlServerReader):
    """``sync.ports.reader.TableReader``."""

    stream: EventStream

    @cached_property
    def shape(self) -> RowShape:
        table = self.plan.feed.table
        is_first = self.plan.kind is LoadKind.FIRST_LOAD
        return RowShape(
            key=table.key,
            own=() if is_first else OWN_COLUMNS,
            values=value_columns(table, self.plan.temporal),
            order=(POSITION, OPERATION),
            position=POSITION,
            operation=OPERATION,
            mask=MASK,
        )

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the table between the marks and the ends of the plan."""
        return _StreamRead(self.plan, self.source.database, self.stream).run()

    def require_end(self, session: SourceSession) -> None:
        """Accept any state of the database: a change that it does not have yet comes with a later window."""


@dataclass
class _StreamRead:
    """One read of a table from the stream."""

    plan: TablePlan
    database: str
    stream: EventStream
    decoder: BatchDecoder = field(default_factory=BatchDecoder)
    joiner: SegmentJoiner = field(default_factory=SegmentJoiner)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    quarantined: dict[int, list[QuarantinedMessage]] = field(default_factory=dict)
    """By partition."""
    kept_bytes: int = 0
    lost: dict[int, str] = field(default_factory=dict)
    """By partition: why a change of the table may be lost."""

    def __post_init__(self) -> None:
        self.rows = TableRows(self.plan.feed.table, self.plan.temporal)
        self.known = {each.member: each.mark for each in self.plan.marks}
        marks = {int(name): PartitionMark.parse(mark) for name, mark in self.known.items() if mark}
        self.marks: Mapping[int, PartitionMark] = marks
        self.met_at = {(number, each.offset): each.met_at for number, mark in marks.items() for each in mark.carried}

    def run(self) -> Iterator[pa.RecordBatch]:
        ends = {int(end.member): PartitionMark.parse(str(end.mark)).next for end in self.plan.ends}
        for number, mark in self.marks.items():
            yield from self._joined(self._restore(number, mark))
        for number, end in ends.items():
            begin = self.marks[number].next if number in self.marks else self._first_offset(number, end)
            for chunk in _chunks(self._messages(number, begin, end)):
                yield from self._read_chunk(number, chunk)
        carried = self._carry()
        reads = [self._report(number, end, carried.get(number, [])) for number, end in ends.items()]
        yield attach_members(self.rows.empty(), reads)

    def _first_offset(self, number: int, end: int) -> int:
        """Return where a partition begins that is new since the first load of the table."""
        found = self.stream.read_ends().get(number)
        return min(found.low, end) if found else end

    def _messages(self, number: int, begin: int, end: int) -> Iterator[Sequence[RawMessage]]:
        try:
            yield from self.stream.read(number, begin, end)
        except StreamGapError as error:
            raise WindowExpiredError(str(self.plan.source), f"{error}.", "Reload the table.") from None

    def _read_chunk(self, number: int, messages: Sequence[RawMessage]) -> Iterator[pa.RecordBatch]:
        bodies = [each.body or b"" for each in messages]
        batch = self._decode(bodies)
        yield from self._build(number, messages, batch.rows)
        for place, envelope in batch.segments:
            found = messages[place]
            message = StreamMessage(self.stream.topic, number, found.offset, bodies[place], envelope)
            yield from self._joined(self.joiner.add(message))
        for place, fault in batch.faults:
            self._quarantine(number, messages[place].offset, str(fault), messages[place].body)

    def _decode(self, bodies: Sequence[bytes]) -> DecodedBatch:
        try:
            return self.decoder.decode(bodies)
        except UnknownVersionError as error:
            raise UnknownFormatError(
                str(self.plan.source), f"{error}.", "Upgrade Floodmark. Nothing of the window was merged."
            ) from None

    def _build(
        self, number: int, messages: Sequence[RawMessage], rows: Mapping[TableForm, Sequence[EventRow]]
    ) -> Iterator[pa.RecordBatch]:
        for form, found in rows.items():
            if not self._is_own(form):
                continue
            for each in self.rows.build(form, found):
                if isinstance(each, BadRow):
                    message = messages[each.place]
                    self._quarantine(number, message.offset, each.reason, message.body)
                else:
                    yield each

    def _is_own(self, form: TableForm) -> bool:
        name = self.plan.feed.table.name
        found = (form.database.casefold(), form.schema.casefold(), form.table.casefold())
        return found == (self.database.casefold(), *name.folded)

    def _restore(self, number: int, mark: PartitionMark) -> Iterator[Outcome]:
        for each in mark.carried:
            message = StreamMessage(self.stream.topic, number, each.offset, each.body, parse_envelope(each.body))
            yield from self.joiner.add(message)

    def _joined(self, outcomes: Iterable[Outcome]) -> Iterator[pa.RecordBatch]:
        for outcome in outcomes:
            first = outcome.messages[0]
            if isinstance(outcome, FaultyGroup):
                self._quarantine_group(outcome.messages, outcome.reason)
                continue
            try:
                yield from self._build_joined(outcome)
            except PoisonError as fault:
                self._quarantine_group(outcome.messages, str(fault))
            _LOG.debug("%s: event at %s of partition %s joined.", self.plan.source, first.offset, first.partition)

    def _build_joined(self, event: JoinedEvent) -> Iterator[pa.RecordBatch]:
        change = parse_change(event.envelope)
        first = event.messages[0]
        message = RawMessage(first.offset, first.body)
        yield from self._build(first.partition, [message], {table_form(change): [event_row(0, change)]})

    def _carry(self) -> dict[int, list[CarriedSegment]]:
        """Return the segments to carry, by partition. Those that came too long ago go to quarantine."""
        carried: dict[int, list[CarriedSegment]] = {}
        room = MOST_CARRIED_BYTES
        for group in reversed(self.joiner.take_incomplete()):
            if not self._may_be_own(group):
                continue
            since = min(self.met_at.get((each.partition, each.offset), self.now) for each in group)
            room -= sum(len(each.body) for each in group)
            if self.now - since > SEGMENTS_WITHIN or room < 0:
                self._lose(group, since)
                continue
            for each in group:
                carried.setdefault(each.partition, []).append(CarriedSegment(each.offset, since, each.body))
        return carried

    def _may_be_own(self, group: Sequence[StreamMessage]) -> bool:
        """Return whether the event of some segments may be one of the table: only its first segment names it."""
        name = self.plan.feed.table.name
        for each in group:
            if isinstance(each.envelope.data, str) and (found := _TABLE.search(each.envelope.data)):
                return (found[1].casefold(), found[2].casefold()) == name.folded or "\\" in found[0]
        return True

    def _lose(self, group: Sequence[StreamMessage], since: datetime) -> None:
        reason = f"segments of the event have not arrived since {since:%Y-%m-%d %H:%M:%S} UTC"
        self._quarantine_group(group, reason)
        for each in group:
            self.lost[each.partition] = f"an event of the table may be lost: {reason}"

    def _quarantine_group(self, messages: Sequence[StreamMessage], reason: str) -> None:
        for each in messages:
            self._quarantine(each.partition, each.offset, reason, each.body)

    def _quarantine(self, number: int, offset: int, reason: str, body: bytes | None) -> None:
        self.kept_bytes += len(body or b"")
        kept = body if self.kept_bytes <= _MOST_BODIES_BYTES else None
        self.quarantined.setdefault(number, []).append(QuarantinedMessage(str(offset), reason, kept))
        _LOG.warning(
            "%s: message %s of partition %s went to floodmark.quarantined_messages: %s.",
            self.plan.source,
            offset,
            number,
            reason,
        )

    def _report(self, number: int, end: int, carried: Sequence[CarriedSegment]) -> MemberRead:
        lost = self.lost.get(number, "")
        before = self.known.get(str(number))
        return MemberRead(
            str(number),
            before,
            str(PartitionMark(end, tuple(carried), lost)),
            verdict=Verdict.EXPIRED if lost else None,
            cause=f"{lost}." if lost else "",
            hint="Reload the table (floodmark reload)." if lost else "",
            quarantined=tuple(self.quarantined.get(number, ())),
        )


def _chunks(messages: Iterable[Sequence[RawMessage]]) -> Iterator[list[RawMessage]]:
    """Yield messages in lists that are long enough to be decoded at once, and bounded in bytes."""
    held: list[RawMessage] = []
    held_bytes = 0
    for found in messages:
        for each in found:
            held.append(each)
            held_bytes += len(each.body or b"")
            if len(held) >= _CHUNK_MESSAGES or held_bytes >= _CHUNK_BYTES:
                yield held
                held, held_bytes = [], 0
    if held:
        yield held
