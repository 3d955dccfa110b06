"""``StreamPass``: one pass over a stream for several tables, whose events are all in the same topic.

The partitions are read one after the other, each from the lowest mark to the end that was planned. The segments of an
event may be in several partitions, so all of them go to one joiner. What is not whole at the end is carried in the
marks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from traceback import format_exc
from typing import NamedTuple

import pyarrow as pa

from floodmark.core.errors import ConfigError, FloodmarkBugError, FloodmarkError, UnknownFormatError, WindowExpiredError
from floodmark.core.window.plan import TablePlan
from floodmark.sources.event_stream.batches import BatchDecoder
from floodmark.sources.event_stream.change import find_names, parse_change
from floodmark.sources.event_stream.envelope import parse_envelope
from floodmark.sources.event_stream.epochs import are_marked, newest_of
from floodmark.sources.event_stream.faults import PoisonError, UnknownVersionError
from floodmark.sources.event_stream.joining import FaultyGroup, JoinedEvent, Outcome, SegmentJoiner, StreamMessage
from floodmark.sources.event_stream.pass_state import MOST_BODIES_BYTES, PassState, Place
from floodmark.sources.event_stream.rows import EventRow, TableForm, event_row, table_form
from floodmark.sources.event_stream.table_rows import BadRow
from floodmark.sources.event_stream.transport import EventStream, RawMessage, StreamGapError
from floodmark.sync.ports.members import attach_members

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
        for state in self._states:
            state.most_bytes = MOST_BODIES_BYTES // len(self._states)
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
        for state in self._states:
            for number, mark in state.marks.items():
                for each in mark.carried:
                    envelope = parse_envelope(each.body)
                    yield StreamMessage(self.stream.topic, number, each.offset, each.body, envelope)

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
        """Set messages aside of which nobody knows the table.

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
