"""``StreamPass``: one pass over a stream for several tables, whose events are all in the same topic.

The partitions are read one after the other, each from the lowest mark to the end that was planned. The segments of an
event may be in several partitions, so all of them go to one joiner. What is not whole at the end is carried in the
marks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from traceback import format_exc
from typing import NamedTuple

import pyarrow as pa

from floodmark.core.columns import hides_values, masks_of
from floodmark.core.errors import ConfigError, FloodmarkBugError, FloodmarkError, UnknownFormatError, WindowExpiredError
from floodmark.core.plan import MemberRead, QuarantinedMessage, TablePlan
from floodmark.core.settings import Mask
from floodmark.core.snapshot import Verdict
from floodmark.sources.event_stream.change import EventRow, TableForm, event_row, find_names, parse_change, table_form
from floodmark.sources.event_stream.envelope import PoisonError, UnknownVersionError, parse_envelope
from floodmark.sources.event_stream.epochs import (
    MOST_CARRIED_BYTES,
    BatchDecoder,
    CarriedSegment,
    Epoch,
    EpochWatch,
    LoadedCommit,
    PartitionMark,
    are_marked,
    epochs_of_partitions,
    newest_of,
)
from floodmark.sources.event_stream.rows import (
    BadRow,
    FaultyGroup,
    JoinedEvent,
    Outcome,
    SegmentJoiner,
    StreamMessage,
    TableRows,
)
from floodmark.sources.event_stream.transport import EventStream, RawMessage, StreamGapError
from floodmark.sources.event_stream.values import EventFilter
from floodmark.sync.records import attach_members

# --------------------------------------------------------------------------------------------------------------------
# The state of a table in one pass over a stream: where it begins, what is set aside, and its marks at the end.


SEGMENTS_WITHIN = timedelta(hours=1)
"""The time within which all segments of an event must arrive."""
REPLACED = "the stream was set up again, and changes in between are lost: other events arrive"
_OLDER = "the event is older than the stream in use, by its commit time, and no identifier shows which stream it is of"
MOST_BODIES_BYTES = 16 << 20
"""The bytes of messages in quarantine that one pass keeps."""
Place = tuple[int, int, bytes | None]
"""A message: partition, offset and body."""


@dataclass
class PassState:
    """A table in a pass."""

    number: int
    """Its place in the plan of the window."""
    plan: TablePlan
    topic: str
    """The name of the topic that is read."""
    rows: TableRows
    marks: Mapping[int, PartitionMark]
    """By partition: where the table was read to. A new partition has none."""
    begins: dict[int, int]
    """By partition: the offset of the first message."""
    ends: Mapping[int, int]
    """By partition: the offset behind the last message."""
    watches: dict[int, EpochWatch]
    """By partition."""
    loaded: LoadedCommit | None = None
    """What the last load of the whole table has read."""
    newest_lsn: bytes = b""
    """The newest commit LSN of which earlier windows have read events of the table."""
    database: str = ""
    """The name of the database as the server spelled it for the plan; "" in a plan of an earlier version."""
    most_bytes: int = MOST_BODIES_BYTES
    """The bytes of messages in quarantine that are kept."""
    keeps_messages: bool = True
    """Whether messages may be kept as they came, in quarantine and in marks."""
    is_refused: bool = False
    """Whether the window goes on without the table."""
    _quarantined: dict[int, list[QuarantinedMessage]] = field(default_factory=dict)
    _kept_bytes: int = 0
    _lost: dict[int, str] = field(default_factory=dict)
    """By partition: why a change of the table may be lost."""

    @classmethod
    def of(cls, number: int, plan: TablePlan, topic: str, only: Collection[int] | None = None) -> PassState:
        """Return the state at the begin of a pass. only: the partitions that it reads; None for all.

        The epochs are those of all partitions: each is evidence for the others.
        """
        marks = {int(each.member): PartitionMark.parse(each.mark) for each in plan.marks if each.mark}
        planned = {int(end.member): PartitionMark.parse(str(end.mark)) for end in plan.ends}
        ends = {number: mark.next for number, mark in planned.items()}
        epochs = epochs_of_partitions({number: mark.epoch for number, mark in marks.items()}, ends)
        own = {number: mark for number, mark in marks.items() if only is None or number in only}
        return cls(
            number,
            plan,
            topic,
            TableRows(
                plan.feed.table,
                plan.settings.temporal,
                is_log=plan.is_log,
                has_times=plan.has_commit_times,
                has_before_images=plan.has_before_images,
                hashed=[name for name, each in masks_of(plan.settings).items() if each.mask is Mask.HASH],
                find_filter=partial(EventFilter.of, plan),
            ),
            own,
            {number: mark.next for number, mark in own.items()},
            {number: end for number, end in ends.items() if only is None or number in only},
            {number: EpochWatch(epoch) for number, epoch in epochs.items()},
            next((mark.loaded for mark in marks.values() if mark.loaded), None),
            max((mark.epoch.lsn for mark in marks.values() if mark.epoch), default=b""),
            next((mark.database for mark in planned.values()), ""),
        )

    @property
    def epochs(self) -> list[Epoch]:
        """Return the epochs of the table's events."""
        return [each for watch in self.watches.values() for each in (watch.known, watch.later) if each is not None]

    def select_unread(self, partition: int, messages: Sequence[RawMessage], rows: Iterable[EventRow]) -> list[EventRow]:
        """Return the rows of the epoch that the marks have, without those that a load has read.

        Rows of a later epoch are in the load that must follow. Older ones go to quarantine, unless a load has them. An
        event that the load has read may come after it: it came by a slower partition, or again. The row that it changed
        may be deleted since, and nothing in the target shows that.
        """
        watch, loaded = self.watches[partition], self.loaded
        belongs, newest = watch.belongs, loaded.lsn if loaded else b""
        own: list[EventRow] = []
        others: list[EventRow] = []
        for row in rows:
            if not belongs(row):
                others.append(row)
            # Nearly all events are newer: for them a call would cost more than the comparison.
            elif row.commit_lsn > newest:
                own.append(row)
            elif loaded is not None and not loaded.covers(row.commit_lsn, row.committed_at):
                watch.begin(row, steps_back=True)  # newer, with a lower LSN: it would lose against the rows of the load
            elif self.plan.keeps_unread:
                own.append(row)
        older = [
            messages[row.place]
            for row in others
            if watch.is_older(row) and not self._covers(row.commit_lsn, row.committed_at)
        ]
        if older:
            self.quarantine([(partition, each.offset, each.body) for each in older], _OLDER)
        return own

    def find_late_moves(self, partition: int, form: TableForm, rows: Iterable[EventRow]) -> None:
        """Note that rows may be lost where an earlier window has read another part of a commit that changed keys.

        One statement may pass keys on from row to row. The image of a row that gives up a key does not say whether
        another row has it by then: that needs all changes of the commit (``spark.net``). A server that knows the key
        writes no such pairs. A log has each change as it is.
        """
        if self.plan.is_log:
            return
        key = self.plan.feed.table.key
        places = [place for place, each in enumerate(form.columns) if each.name in key]
        for row in rows:
            if row.commit_lsn > self.newest_lsn or row.old is None or row.current is None:
                continue
            is_moved = any(row.old[place] != row.current[place] for place in places)
            if is_moved and {name for name, _ in row.key} != set(key):
                self._lost[partition] = (
                    "rows may be lost: a transaction gave rows other keys, its events came in several windows,"
                    " and the table has no primary key"
                )

    def _covers(self, commit_lsn: bytes, committed_at: datetime) -> bool:
        """Return whether the load has read all rows of a commit, which it has not if the source hides some of them."""
        return self.loaded is not None and not self.plan.keeps_unread and self.loaded.covers(commit_lsn, committed_at)

    def needs(self, partition: int) -> bool:
        """Return whether the window of the table has messages of a partition."""
        return partition in self.ends and self.begins[partition] < self.ends[partition]

    def has_in_window(self, partition: int, offset: int) -> bool:
        """Return whether a message belongs to the window of the table."""
        return self.begins[partition] <= offset < self.ends[partition]

    def quarantine(self, messages: Iterable[Place], reason: str) -> None:
        """Set messages of the table aside. The reason contains no value of a row."""
        for partition, offset, body in messages:
            self._kept_bytes += len(body or b"")
            kept = body if self.keeps_messages and self._kept_bytes <= self.most_bytes else None
            message = QuarantinedMessage(str(offset), reason, kept, self.topic)
            self._quarantined.setdefault(partition, []).append(message)

    def has_unread(self, partition: int, offset: int) -> bool:
        """Return whether a message belongs to the window of the table, or to an event that the table waits for."""
        mark = self.marks.get(partition)
        is_carried = mark is not None and any(each.offset == offset for each in mark.carried)
        return is_carried or (partition in self.ends and self.has_in_window(partition, offset))

    def carry(self, groups: Sequence[Sequence[StreamMessage]], now: datetime) -> dict[int, list[CarriedSegment]]:
        """Return the segments to carry, by partition. Those that came too long ago go to quarantine.

        groups: the segments of each event that is not whole, oldest first.
        """
        met_at = {(number, each.offset): each.met_at for number, mark in self.marks.items() for each in mark.carried}
        carried: dict[int, list[CarriedSegment]] = {}
        room = MOST_CARRIED_BYTES
        for group in reversed([each for each in groups if self._may_be_own(each)]):
            since = min(met_at.get((each.partition, each.offset), now) for each in group)
            room -= sum(len(each.body) for each in group)
            if now - since > SEGMENTS_WITHIN or room < 0:
                self._lose(group, since)
                continue
            for each in group:
                carried.setdefault(each.partition, []).append(self._carried(each, since))
        return carried

    def _carried(self, message: StreamMessage, since: datetime) -> CarriedSegment:
        if self.keeps_messages:
            return CarriedSegment(message.offset, since, message.body)
        return CarriedSegment(message.offset, since, b"", message.envelope.logical_id.text)

    def report(self, carried: Mapping[int, Sequence[CarriedSegment]]) -> list[MemberRead]:
        """Return how each partition was read."""
        known = {each.member: each.mark for each in self.plan.marks}
        reads = []
        for partition, end in self.ends.items():
            mark = self._mark_at(partition, end, carried.get(partition, ()))
            verdict = Verdict.INSTANCE_REPLACED if mark.replaced else Verdict.EXPIRED if mark.lost else None
            cause = mark.replaced or mark.lost
            reads.append(
                MemberRead(
                    str(partition),
                    known.get(str(partition)),
                    str(mark),
                    verdict=verdict,
                    cause=f"{cause}." if cause else "",
                    hint="Reload the table (floodmark reload)." if cause else "",
                    quarantined=tuple(self._quarantined.get(partition, ())),
                )
            )
        return reads

    def _mark_at(self, partition: int, end: int, carried: Sequence[CarriedSegment]) -> PartitionMark:
        watch = self.watches[partition]
        replaced = f"{REPLACED} since {watch.later.begins_at:%Y-%m-%d %H:%M:%S} UTC" if watch.later else ""
        epoch = watch.later or watch.known
        lost = self._lost.get(partition, "")
        return PartitionMark(end, tuple(carried), lost, replaced, epoch, self.loaded, self.database)

    def _may_be_own(self, group: Sequence[StreamMessage]) -> bool:
        """Return whether the event of some segments may be an unread one of the table: its first segment names it."""
        first = group[0].envelope
        if self._covers(first.logical_id.commit_lsn.value, first.time):
            return False
        name = self.plan.feed.table.name
        for each in group:
            if names := find_names(each.envelope.data):
                return names[1:] == (name.schema, name.name) and names[0] == (self.database or names[0])
        return True

    def lose_segment(self, partition: int, segment: CarriedSegment) -> None:
        """Note that an event is lost of which a segment, whose body is not carried, is no longer in the stream."""
        reason = "a segment of the event is no longer in the stream, and was not kept, since values are hidden"
        self.quarantine([(partition, segment.offset, None)], reason)
        self._lost[partition] = f"an event of the table may be lost: {reason}"

    def _lose(self, group: Sequence[StreamMessage], since: datetime) -> None:
        reason = f"segments of the event have not arrived since {since:%Y-%m-%d %H:%M:%S} UTC"
        self.quarantine([(each.partition, each.offset, each.body) for each in group], reason)
        for each in group:
            self._lost[each.partition] = f"an event of the table may be lost: {reason}"


# --------------------------------------------------------------------------------------------------------------------


_CHUNK_MESSAGES = 5_000
_CHUNK_BYTES = 8 << 20
Found = tuple[int, pa.RecordBatch | FloodmarkError]


class _Chunk(NamedTuple):
    """Messages of a partition."""

    partition: int
    messages: Sequence[RawMessage]


@dataclass
class _Read:
    """A read of a partition, as far as it came."""

    next: int
    """The offset of the next message."""

    def noted(self, found: Iterator[Sequence[RawMessage]]) -> Iterator[Sequence[RawMessage]]:
        """Yield messages, and note the place behind them."""
        for messages in found:
            if messages:
                self.next = messages[-1].offset + 1
            yield messages


@dataclass
class StreamPass:
    """A pass over a stream. ``run`` may be called once."""

    database: str
    """The name of the database as the connection spells it: for plans of an earlier version only."""
    stream: EventStream
    tables: Mapping[int, TablePlan]
    """By the place in the plan of the window."""
    only: Collection[int] | None = None
    """The partitions to read; None for all. An event whose segments are in others too stays incomplete."""
    _decoder: BatchDecoder = field(default_factory=BatchDecoder)
    _joiner: SegmentJoiner = field(default_factory=SegmentJoiner)

    def __post_init__(self) -> None:
        self._states = [
            PassState.of(number, plan, self.stream.topic, self.only) for number, plan in self.tables.items()
        ]
        plans = [state.plan.settings for state in self._states]
        # A message that nobody can read may be of any table.
        keeps = all(each.keeps_messages and not hides_values(each) for each in plans)
        for state in self._states:
            state.most_bytes, state.keeps_messages = MOST_BODIES_BYTES // len(self._states), keeps
        names = [state.plan.feed.table.name for state in self._states]
        self._by_name = {(name.schema, name.name): state for name, state in zip(names, self._states, strict=True)}
        self._share_evidence()
        newest = newest_of([epoch for state in self._states for epoch in state.epochs])
        for watch in (watch for state in self._states for watch in state.watches.values()):
            watch.newest = newest

    def run(self) -> Iterator[Found]:
        """Yield batches of changes with the number of their table, and the error of a table that is refused.

        The last batch of a table says how its partitions were read. Raises what the stream raises.
        """
        self._begin_new_partitions()
        for message in self._carried():
            yield from self._join(message)
        for partition in sorted({number for state in self._states for number in state.ends}):
            yield from self._read_partition(partition)
        self._share_evidence()
        groups, now = self._joiner.take_incomplete(), datetime.now(UTC)
        for state in self._states:
            if not state.is_refused:
                yield state.number, attach_members(state.rows.empty(), state.report(state.carry(groups, now)))

    def _share_evidence(self) -> None:
        """Let the events of each table show for all of them that identifiers name epochs."""
        epochs = [epoch for state in self._states for epoch in state.epochs]
        is_marked = are_marked(epochs)
        for epoch in epochs:
            epoch.is_marked = is_marked

    def _begin_new_partitions(self) -> None:
        """Begin a partition that is new since the load of a table with its oldest message."""
        unknown = {number for state in self._states for number in state.ends if number not in state.begins}
        lows = {number: end.low for number, end in self.stream.read_ends().items()} if unknown else {}
        for state in self._states:
            for number, end in state.ends.items():
                state.begins.setdefault(number, min(lows.get(number, end), end))

    def _read_partition(self, partition: int) -> Iterator[Found]:
        """Yield what the messages of a partition are, read once for all tables that need any of them.

        A table that needs a message which is missing is refused. The others go on behind it.
        """
        while wanted := [state for state in self._states if not state.is_refused and state.needs(partition)]:
            begin, end = min(each.begins[partition] for each in wanted), max(each.ends[partition] for each in wanted)
            read = _Read(begin)
            try:
                for messages in chunk_messages(read.noted(self.stream.read(partition, begin, end))):
                    yield from self._read_chunk(_Chunk(partition, messages))
            except StreamGapError as error:
                for state in wanted:
                    if state.begins[partition] <= read.next and not state.is_refused:
                        state.is_refused = True
                        hint = "Reload the table (floodmark reload)."
                        yield state.number, WindowExpiredError(str(state.plan.source), f"{error}.", hint)
            else:
                return

    def _carried(self) -> Iterator[StreamMessage]:
        """Yield the segments of the marks. Several tables may carry the same one; the joiner takes it once."""
        read_again = cache(self._read_again)
        for state in self._states:
            for number, mark in state.marks.items():
                for each in mark.carried:
                    if body := each.body or read_again(number, each.offset):
                        yield StreamMessage(self.stream.topic, number, each.offset, body, parse_envelope(body))
                    else:
                        state.lose_segment(number, each)

    def _read_again(self, partition: int, offset: int) -> bytes | None:
        """Return the body of a message; None where the stream no longer has it."""
        try:
            found = [each for some in self.stream.read(partition, offset, offset + 1) for each in some]
        except StreamGapError:
            return None
        return found[0].body if found else None

    def _read_chunk(self, chunk: _Chunk) -> Iterator[Found]:
        bodies = [each.body or b"" for each in chunk.messages]
        batch = self._decoder.decode(bodies)
        for place, unknown in batch.unknown:
            yield from self._refuse_unknown(chunk.partition, chunk.messages[place].offset, unknown)
        yield from self._build(chunk, batch.rows)
        for place, envelope in batch.segments:
            offset = chunk.messages[place].offset
            message = StreamMessage(self.stream.topic, chunk.partition, offset, bodies[place], envelope)
            yield from self._join(message)
        for place, fault in batch.faults:
            self._quarantine([(chunk.partition, chunk.messages[place].offset, chunk.messages[place].body)], str(fault))

    def _refuse_unknown(self, partition: int, offset: int, unknown: UnknownVersionError) -> Iterator[Found]:
        """Yield the errors about a message in an unknown version: of the table that it names, else of all tables."""
        names = find_names(unknown.data)
        for state in [self._state_of(*names)] if names else self._states:
            if state is not None and not state.is_refused and state.has_unread(partition, offset):
                state.is_refused = True
                cause = f"message {offset} of partition {partition} of {self.stream.topic} {unknown}."
                hint = "Upgrade Floodmark. To go past the message without that, load the table (floodmark reload)."
                yield state.number, UnknownFormatError(str(state.plan.source), cause, hint)

    def _build(
        self, chunk: _Chunk, rows: Mapping[TableForm, Sequence[EventRow]], *, is_joined: bool = False
    ) -> Iterator[Found]:
        """Yield the rows of the tables of the pass.

        is_joined: the message is the first one of an event, which a table may have read in an earlier window.
        """
        for form, found in rows.items():
            state = self._state_of(form.database, form.schema, form.table)
            if state is None or state.is_refused:
                continue
            own = [
                row
                for row in found
                if is_joined or state.has_in_window(chunk.partition, chunk.messages[row.place].offset)
            ]
            try:
                yield from self._build_own(state, chunk, form, own)
            except ConfigError as error:
                state.is_refused = True
                yield state.number, error
            except Exception as error:  # noqa: BLE001  (a bug that one table shows must not stop the others)
                state.is_refused = True
                yield state.number, _bug(state.plan, error)

    def _build_own(self, state: PassState, chunk: _Chunk, form: TableForm, rows: Sequence[EventRow]) -> Iterator[Found]:
        own = state.select_unread(chunk.partition, chunk.messages, rows)
        if not own:
            return
        state.find_late_moves(chunk.partition, form, own)
        for each in state.rows.build(form, own):
            if isinstance(each, BadRow):
                message = chunk.messages[each.place]
                state.quarantine([(chunk.partition, message.offset, message.body)], each.reason)
            else:
                yield state.number, each

    def _state_of(self, database: str, schema: str, table: str) -> PassState | None:
        planned = self._states[0].database
        is_own = database == planned if planned else database.casefold() == self.database.casefold()
        return self._by_name.get((schema, table)) if is_own else None

    def _join(self, message: StreamMessage) -> Iterator[Found]:
        for outcome in self._joiner.add(message):
            yield from self._take(outcome)

    def _take(self, outcome: Outcome) -> Iterator[Found]:
        if isinstance(outcome, FaultyGroup):
            self._quarantine_group(outcome.messages, outcome.reason)
            return
        try:
            yield from self._build_joined(outcome)
        except PoisonError as fault:
            self._quarantine_group(outcome.messages, str(fault))

    def _build_joined(self, event: JoinedEvent) -> Iterator[Found]:
        change, first = parse_change(event.envelope), event.messages[0]
        chunk = _Chunk(first.partition, [RawMessage(first.offset, first.body)])
        yield from self._build(chunk, {table_form(change): [event_row(0, change)]}, is_joined=True)

    def _quarantine_group(self, messages: Iterable[StreamMessage], reason: str) -> None:
        self._quarantine([(each.partition, each.offset, each.body) for each in messages], reason)

    def _quarantine(self, messages: Sequence[Place], reason: str) -> None:
        """Quarantine messages that cannot be assigned to a table.

        Each table reports them whose mark moves past them: any of the others may leave the window.
        """
        for state in self._states:
            state.quarantine([each for each in messages if state.has_unread(each[0], each[1])], reason)


def chunk_messages(messages: Iterable[Sequence[RawMessage]]) -> Iterator[list[RawMessage]]:
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


def _bug(plan: TablePlan, found: Exception) -> FloodmarkBugError:
    cause = f"its events cannot be read ({type(found).__name__})."
    hint = "The log of the job has the details. A load of the whole table goes past them (floodmark reload)."
    return FloodmarkBugError(str(plan.source), cause, hint, format_exc())
