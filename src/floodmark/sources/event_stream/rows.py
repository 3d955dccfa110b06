"""Rows of events as Arrow batches in the shape of a table of a plan, joined from their messages."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import ConfigError
from floodmark.core.plan import ValueColumn, value_columns
from floodmark.core.position import POSITION_BYTES
from floodmark.core.schema import Operation, SourceColumn, SourceTable
from floodmark.core.settings import TemporalPolicy
from floodmark.core.types import Kind, WarehouseType
from floodmark.sources.event_stream.change import (
    EventRow,
    TableForm,
    Values,
    change_position,
    read_data,
    read_event_columns,
    read_object,
)
from floodmark.sources.event_stream.envelope import (
    Data,
    Envelope,
    EventOperation,
    PoisonError,
    Segment,
    Split,
    is_alone,
)
from floodmark.sources.event_stream.usual_form import read_plain_texts
from floodmark.sources.event_stream.values import EventFilter, has_form_of, value_reader
from floodmark.sync.arrow import arrow_type

# --------------------------------------------------------------------------------------------------------------------
# Columns of Arrow batches from the texts of events.


FEWEST_IN_BULK = 50
"""Fewer texts are read sooner one by one: Arrow takes some time for each column."""


def build_array(
    texts: Sequence[str | None], column: SourceColumn, as_type: WarehouseType, temporal: TemporalPolicy
) -> pa.Array:
    """Return a column of a batch. Raises PoisonError, naming the column, for a text that is no value of its type.

    Half of a surrogate pair becomes the three bytes that UTF-8 would have for it, as in the batches of the other kinds
    on SQL Server: no valid text, so that the warehouse finds it (``postgres.warehouse.sink``).
    """
    if len(texts) >= FEWEST_IN_BULK and (plain := read_plain_texts(texts, column, as_type)) is not None:
        return plain
    read = value_reader(column, as_type, temporal)
    values = [read(text) for text in texts]
    if as_type.kind is not Kind.TEXT:
        return pa.array(values, arrow_type(as_type))
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        octets = [None if value is None else value.encode(errors="surrogatepass") for value in values]
        return pa.array(octets, pa.binary()).view(pa.string())


# --------------------------------------------------------------------------------------------------------------------
# Rows of events as Arrow batches in the shape of a table of a plan.
#
# An update that gave a row another key is two changes: the image before it, and the row under its new key. So net
# changes remove the old key (``spark.net``). In a log they are a delete and an insert, as in that of change data
# capture.
#
# A log has the commit of a change and its place in the commit as two columns. Everywhere else one position has both.


POSITION = "__position"
OPERATION = "__operation"
MASK = "__mask"
SEQUENCE = "__sequence"
"""The place of a change in its transaction, for a log."""
COMMITTED_AT = "__committed"
"""The time of the commit."""
_TYPES = {"binary": pa.binary(), "int": pa.int32(), "moment": pa.timestamp("us", tz="UTC")}
_OPERATIONS = {EventOperation.INSERT: Operation.INSERT, EventOperation.UPDATE: Operation.UPDATE}


def own_columns(*, is_log: bool, has_times: bool) -> tuple[tuple[str, str], ...]:
    """Return name and type of the columns of a change itself."""
    of_log = ((SEQUENCE, "binary"),) if is_log else ()
    times = ((COMMITTED_AT, "moment"),) if has_times else ()
    return ((POSITION, "binary"), (OPERATION, "int"), (MASK, "binary"), *of_log, *times)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read, and why."""

    place: int
    reason: str


class _Change(NamedTuple):
    """A change of a key."""

    row: EventRow
    """The event."""
    position: bytes
    operation: Operation
    values: Values


_Passing = Callable[[Values], bool]
"""Returns whether the values of an image pass the filter. It raises PoisonError."""


class TableRows:
    """A builder of the batches of one table."""

    def __init__(
        self,
        table: SourceTable,
        temporal: TemporalPolicy,
        *,
        is_log: bool = False,
        has_times: bool = False,
        has_before_images: bool = False,
        hashed: Collection[str] = (),
        find_filter: Callable[[], EventFilter | None] = lambda: None,
    ) -> None:
        """has_times: each change has the time of its commit. has_before_images: the row before an update comes too.

        hashed: the columns with hashes in place of values. find_filter: returns the filter, or raises ConfigError.
        """
        self._table = table
        self._is_log, self._has_times, self._has_before_images = is_log, has_times, has_before_images
        self._temporal = temporal
        self._find_filter = find_filter
        # The reader of a load has the letters of the server, and equal values have one hash.
        guids = {column.name for column in table.stored_columns if column.type_name == "uniqueidentifier"}
        self._capitals = guids.intersection(hashed)
        self._columns = value_columns(table, temporal)
        self._present = {column.name: column for column in table.stored_columns}
        own = [pa.field(name, _TYPES[kind]) for name, kind in own_columns(is_log=is_log, has_times=has_times)]
        fields = [pa.field(column.name, arrow_type(column.type)) for column in self._columns]
        self.schema = pa.schema([*own, *fields])

    @cached_property
    def _filter(self) -> EventFilter | None:
        return self._find_filter()

    def empty(self) -> pa.RecordBatch:
        """Return a batch without rows."""
        return pa.RecordBatch.from_pylist([], schema=self.schema)

    def build(self, form: TableForm, rows: Sequence[EventRow]) -> Iterator[pa.RecordBatch | BadRow]:
        """Yield batches of rows, and the rows that cannot be read.

        Raises ConfigError for events that leave out columns of the table, or the row before an update.
        """
        self._require_columns(form)
        passing = self._passing(form)
        places = _places(form)
        key = [places[name] for name in self._table.key]
        changes: list[_Change] = []
        for row in rows:
            try:
                changes += self._passed(row, self._changes(form, key, row), passing)
            except PoisonError as fault:
                yield BadRow(row.place, str(fault))
        if changes:
            yield from self._batches(form, changes)

    def _changes(self, form: TableForm, key: Sequence[int], row: EventRow) -> list[_Change]:
        """Return the changes of keys that a row is. ``key``: the places of the key's columns."""
        try:
            position = change_position(row.commit_lsn, row.sequence)
        except OverflowError:
            raise PoisonError("the sequence number of the change has more than four bytes") from None
        if row.current is None:
            return [_Change(row, position, Operation.DELETE, row.old or self._key_values(form, row))]
        if row.old is not None and [row.old[place] for place in key] != [row.current[place] for place in key]:
            if self._table.is_partial and self._absent(form):
                raise PoisonError("an update of the key leaves out columns: the row under its new key would lack them")
            left, came = (
                (Operation.DELETE, Operation.INSERT) if self._is_log else (Operation.BEFORE_UPDATE, Operation.MOVED)
            )
            return [_Change(row, position, left, row.old), _Change(row, position, came, row.current)]
        change = _Change(row, position, _OPERATIONS[row.operation], row.current)
        if self._has_before_images and row.operation is EventOperation.UPDATE:
            needs = "and the log is to have it", "set before_images: false"
            return [_Change(row, position, Operation.BEFORE_UPDATE, self._require_old(row, *needs)), change]
        return [change]

    def _require_old(self, row: EventRow, need: str, otherwise: str) -> Values:
        if row.old is None:
            change = "an update" if row.current else "a delete"
            raise ConfigError(
                str(self._table.name),
                f"its events lack the row before {change}, {need}.",
                f"Add the table to its stream group again with @include_old_values = 1, or {otherwise}.",
            )
        return row.old

    def _passing(self, form: TableForm) -> _Passing | None:
        """Return the filter of rows of a form; None without a filter. Raises ConfigError for an absent column."""
        found, places = self._filter, _places(form)
        if found is None:
            return None
        if absent := [name for name in found.columns if name not in places]:
            cause = f"its events leave out columns that its filter needs ({', '.join(absent)})."
            hint = "Load the table (floodmark reload), and add it to its stream group with @include_all_columns = 1."
            raise ConfigError(str(self._table.name), cause, hint)

        def passes(values: Values) -> bool:
            texts = {name: values[places[name]] for name in found.columns}
            for name in (name for name, text in texts.items() if text is not None):
                _require_form(form.columns[places[name]].column, found.columns[name])
            return found.passes(texts)

        return passes

    def _passed(self, row: EventRow, changes: list[_Change], passes: _Passing | None) -> list[_Change]:
        """Return the changes of the rows that pass the filter, with no value of others.

        An update that takes a row out of the filter is a delete with the image before it, one that brings a row in is
        an insert, as if the source had no other rows.
        """
        if passes is None:
            return changes
        last, needs = changes[-1], ("which shows whether the row passed the filter", "remove where")
        old = last.values if row.operation is EventOperation.INSERT else self._require_old(row, *needs)
        if last.operation is not Operation.UPDATE:
            return [each for each in changes if passes(each.values)]
        has_passed, will_pass = passes(old), passes(last.values)
        if has_passed and will_pass:
            return changes
        left = [last._replace(operation=Operation.DELETE, values=old)] if has_passed else []
        return [last._replace(operation=Operation.INSERT)] if will_pass else left

    def _key_values(self, form: TableForm, row: EventRow) -> Values:
        """Return the values of a deleted row of which only the key is known."""
        key = dict(row.key)
        if not set(self._table.key) <= key.keys():
            raise PoisonError("a delete has no values, and its key is not the key of the table")
        return tuple(key.get(column.name) for column in form.columns)

    def _batches(self, form: TableForm, changes: Sequence[_Change]) -> Iterator[pa.RecordBatch | BadRow]:
        """Yield changes as one batch. A bad one is found by halves, so that the others are read."""
        try:
            yield self._batch(form, changes)
        except PoisonError as fault:
            if len(changes) == 1:
                yield BadRow(changes[0].row.place, str(fault))
                return
            half = len(changes) // 2
            yield from self._batches(form, changes[:half])
            yield from self._batches(form, changes[half:])

    def _batch(self, form: TableForm, changes: Sequence[_Change]) -> pa.RecordBatch:
        places = _places(form)
        events, positions, operations, rows = zip(*changes, strict=True)
        texts = list(zip(*rows, strict=True))
        masks = self._masks_of_log(form, events) if self._is_log else [self._mask(form)] * len(changes)
        commits = [each[:POSITION_BYTES] for each in positions] if self._is_log else positions
        arrays: list[pa.Array] = [
            pa.array(commits, pa.binary()),
            pa.array(operations, pa.int32()),
            pa.array(masks, pa.binary()),
        ]
        if self._is_log:
            arrays.append(pa.array([each[POSITION_BYTES:] for each in positions], pa.binary()))
        if self._has_times:
            arrays.append(pa.array([each.committed_at for each in events], _TYPES["moment"]))
        for column in self._columns:
            place = places.get(column.name)
            if place is None:
                arrays.append(pa.nulls(len(changes), arrow_type(column.type)))
            else:
                arrays.append(self._array(column, form.columns[place].column, texts[place]))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, column: ValueColumn, written: SourceColumn, texts: Sequence[str | None]) -> pa.Array:
        """Return a column of a batch. ``written``: the column when the events were written."""
        present = self._present[column.name]
        if any(text is not None for text in texts):
            _require_form(written, present)
        found = build_array(texts, present, column.type, self._temporal)
        return pc.utf8_upper(found) if column.name in self._capitals else found

    def _mask(self, form: TableForm) -> bytes | None:
        """Return the columns that events have, in the form of an update mask; None for tables with whole events."""
        if not self._table.is_partial:
            return None
        return self._mask_of({each.name for each in form.columns})

    def _mask_of(self, names: Collection[str]) -> bytes:
        bits = sum(1 << column.ordinal - 1 for column in self._table.columns if column.name in names)
        return bits.to_bytes(-(-max(column.ordinal for column in self._table.columns) // 8))

    def _masks_of_log(self, form: TableForm, events: Sequence[EventRow]) -> list[bytes | None]:
        """Return for each change the columns that an update changed; None where its event does not show them.

        Without the row before it, they are those that the event has, if it leaves out others. A LOB whose old value the
        event does not have may have changed.
        """
        names = [each.name for each in form.columns]
        known = self._mask_of(set(names).difference(self._table.key)) if self._leaves_out(form) else None
        masks: list[bytes | None] = []
        for row in events:
            if row.old is None or row.current is None:
                masks.append(known)
                continue
            pairs = zip(names, row.old, row.current, strict=True)
            masks.append(self._mask_of({name for name, old, new in pairs if old != new or name in row.unknown}))
        return masks

    def _absent(self, form: TableForm) -> list[str]:
        """Return the columns of the table that events lack for whatever reason."""
        carried = {each.name for each in form.columns}
        return [column.name for column in self._table.stored_columns if column.name not in carried]

    def _leaves_out(self, form: TableForm) -> list[str]:
        """Return the columns that events leave out although the table had them when they were written.

        A column that is added later has a place behind all others: earlier events leave it out.
        """
        carried = {each.name for each in form.columns}
        last = max(each.index for each in form.columns)
        stored = self._table.stored_columns
        return [column.name for column in stored if column.name not in carried and column.ordinal <= last]

    def _require_columns(self, form: TableForm) -> None:
        """Raise ConfigError for events that leave out columns of the key, or others where they should be whole."""
        carried = {each.name for each in form.columns}
        unknown = [name for name in self._table.key if name not in carried]
        if unknown:
            raise ConfigError(
                str(self._table.name),
                f"its events leave out columns of its key ({', '.join(unknown)}).",
                "Give the table a primary key, or add it to its stream group again with @include_all_columns = 1.",
            )
        missing = [] if self._table.is_partial else self._leaves_out(form)
        if missing:
            raise ConfigError(
                str(self._table.name),
                f"its events leave out columns ({', '.join(missing)}).",
                "Add the table to its stream group again with @include_all_columns = 1.",
            )


def _require_form(written: SourceColumn, present: SourceColumn) -> None:
    """Raise PoisonError for a column whose texts, when they were written, are not read as its present type."""
    if not has_form_of(written, present):
        cause = f"had type {written.declared_type} when the event was written, and is {present.declared_type} now"
        raise PoisonError(f"column {present.name} {cause}")


def _places(form: TableForm) -> dict[str, int]:
    return {each.name: place for place, each in enumerate(form.columns)}


# --------------------------------------------------------------------------------------------------------------------
# ``SegmentJoiner``: the segments of an event become one event again.
#
# A server splits the data of a large event over several messages, which may arrive in any order and more than once. The
# parts are no JSON by themselves. Events of one message pass at once.
#
# The first segment has index 0 or 1. A group that lacks segment 0 has the indices of a whole one that begins at 1. The
# data decides: it begins with the name of one of its two parts, and no part of it that lacks the beginning does
# (docs/reference/event_stream.md, "Segments"). So each group shows its own base, also where servers of two generations
# write to one topic.


DEFAULT_LIMIT_BYTES = 64 << 20
_CLOSED_GROUPS = 4096
"""The number of groups that are remembered after their end."""
_BEGINNING = re.compile(r'\s*\{\s*"(?:eventsource|eventrow)"\s*:')


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message as it was read."""

    topic: str
    partition: int
    offset: int
    body: bytes
    envelope: Envelope
    """The result of ``parse_envelope`` for the body."""

    @property
    def join_key(self) -> tuple[str, str]:
        """Return the topic and the ``logicalid``, which all messages of an event share."""
        return self.topic, self.envelope.logical_id.text


@dataclass(frozen=True, slots=True)
class JoinedEvent:
    """A whole event."""

    envelope: Envelope
    """With the data of all segments. Its attributes are those of the first one."""
    messages: tuple[StreamMessage, ...]
    """The messages that it was joined from, in the order of their segments."""


@dataclass(frozen=True, slots=True)
class FaultyGroup:
    """Messages of an event that cannot be joined: they belong in quarantine."""

    reason: str
    """It contains no value of a row."""
    messages: tuple[StreamMessage, ...]


@dataclass(slots=True)
class _Group:
    """The segments of an event that have arrived."""

    messages: dict[int, StreamMessage] = field(default_factory=dict)
    bytes: int = 0
    final: int | None = None
    """The index of the last segment."""
    total: int | None = None
    """The number of segments, in the first generation."""


Outcome = JoinedEvent | FaultyGroup


class SegmentJoiner:
    """Joins segments, in memory that is bounded by the bytes of the bodies that wait."""

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._groups: OrderedDict[tuple[str, str], _Group] = OrderedDict()
        self._closed: OrderedDict[tuple[str, str], dict[int, bytes] | str] = OrderedDict()
        """The digests of the segments of groups that ended, or the reason why the group is faulty."""
        self._bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes of the bodies that wait for other segments."""
        return self._bytes

    def add(self, message: StreamMessage) -> tuple[Outcome, ...]:
        """Take a message. Return the events that are whole now, and the groups that are faulty now."""
        envelope = message.envelope
        if is_whole(envelope):
            return (JoinedEvent(envelope, (message,)),)
        key = message.join_key
        if key in self._closed:
            return self._add_late(key, message)
        group = self._groups.setdefault(key, _Group())
        known = group.messages.get(envelope.place.index)
        if known is not None:
            if known.envelope.data == envelope.data and known.envelope.place == envelope.place:
                return ()
            return (self._refuse(key, "a segment arrived twice, with different data", message),)
        if reason := _contradiction(group, envelope) or _take_place(group, envelope.place):
            return (self._refuse(key, reason, message),)
        group.messages[envelope.place.index] = message
        group.bytes += len(message.body)
        self._bytes += len(message.body)
        outcome = self._finish(key, group)
        return (outcome,) if outcome else tuple(self._evict())

    def take_incomplete(self) -> tuple[tuple[StreamMessage, ...], ...]:
        """Remove the groups that lack segments, and return the messages of each, oldest first."""
        groups = tuple(tuple(group.messages.values()) for group in self._groups.values())
        self._groups.clear()
        self._bytes = 0
        return groups

    def put_back(self, groups: Iterable[Iterable[StreamMessage]]) -> tuple[Outcome, ...]:
        """Take the groups of ``take_incomplete`` again, before any other message. Return as ``add``."""
        return tuple(outcome for group in groups for message in group for outcome in self.add(message))

    def _add_late(self, key: tuple[str, str], message: StreamMessage) -> tuple[Outcome, ...]:
        """Return nothing for a segment of a group that was joined already, a fault for one that does not fit it."""
        closed = self._closed[key]
        if isinstance(closed, str):
            return (FaultyGroup(closed, (message,)),)
        if closed.get(message.envelope.place.index) == _digest(message.envelope.data):
            return ()
        return (FaultyGroup("a segment arrived after its event was joined, with different data", (message,)),)

    def _finish(self, key: tuple[str, str], group: _Group) -> Outcome | None:
        if not _is_complete(group):
            return None
        ordered = [group.messages[index] for index in sorted(group.messages)]
        try:
            data = join_data([each.envelope.data for each in ordered])
            if group.total is None and 0 not in group.messages and not _is_beginning(data):
                return None  # segment 0 has not arrived
            read_data(data)
        except PoisonError as fault:
            return self._refuse(key, f"the joined segments are no event: {fault}")
        self._remove(key)
        self._close(key, {index: _digest(each.envelope.data) for index, each in group.messages.items()})
        return JoinedEvent(replace(ordered[0].envelope, data=data, place=Segment(0, True)), tuple(ordered))

    def _refuse(self, key: tuple[str, str], reason: str, *more: StreamMessage) -> FaultyGroup:
        group = self._remove(key)
        self._close(key, reason)
        return FaultyGroup(reason, (*group.messages.values(), *more))

    def _evict(self) -> Iterator[FaultyGroup]:
        while self._bytes > self._limit_bytes:
            yield self._refuse(
                next(iter(self._groups)), "too many bytes of segments wait for others, and it is the oldest"
            )

    def _remove(self, key: tuple[str, str]) -> _Group:
        group = self._groups.pop(key)
        self._bytes -= group.bytes
        return group

    def _close(self, key: tuple[str, str], trace: dict[int, bytes] | str) -> None:
        self._closed[key] = trace
        if len(self._closed) > _CLOSED_GROUPS:
            self._closed.popitem(last=False)


def join_data(parts: list[Data]) -> str | bytes:
    """Return the data of segments in their order. Raises PoisonError for parts of different encodings."""
    if all(isinstance(part, str) for part in parts):
        return "".join(part for part in parts if isinstance(part, str))
    if all(isinstance(part, bytes) for part in parts):
        return b"".join(part for part in parts if isinstance(part, bytes))
    raise PoisonError("the segments of an event have different encodings")


def is_whole(envelope: Envelope) -> bool:
    """Return whether a message is an event by itself. A final segment with index 1 may also be the second of two."""
    place = envelope.place
    if not is_alone(place):
        return False
    return isinstance(place, Split) or place.index == 0 or _is_beginning(envelope.data)


def _is_beginning(data: Data) -> bool:
    """Return whether data begins as that of an event does."""
    if isinstance(data, str):
        return _BEGINNING.match(data) is not None
    # The last part of a datum may be an image alone, which is an object of JSON too: its values are texts. It may also
    # be a datum: the end of the list of columns is read as three names, and then there are no columns.
    try:
        read_event_columns(read_object(read_data(data), "eventsource").get("cols"))
    except PoisonError:
        return False
    return True


def _contradiction(group: _Group, envelope: Envelope) -> str:
    """Return why a message does not belong to a group, "" where it does."""
    for each in group.messages.values():
        if (each.envelope.operation, each.envelope.time) != (envelope.operation, envelope.time):
            return "the segments disagree on their operation or their time"
        break
    return ""


def _take_place(group: _Group, place: Segment | Split) -> str:
    """Note what a place says about its group. Return why it contradicts the others, "" where it does not."""
    if isinstance(place, Split):
        if (group.messages and group.total is None) or (group.total not in (None, place.total)):
            return "the segments disagree on their number"
        group.total = place.total
        return ""
    if group.total is not None:
        return "the segments are of two generations"
    if place.is_final:
        if group.final is not None or any(index > place.index for index in group.messages):
            return "a final segment is not the last one"
        group.final = place.index
    elif group.final is not None and place.index > group.final:
        return "a segment comes after the final one"
    return ""


def _is_complete(group: _Group) -> bool:
    """Return whether a group has no hole. It may lack segment 0 all the same."""
    first, last = min(group.messages), max(group.messages)
    if group.total is not None:
        return len(group.messages) == group.total
    return group.final is not None and first <= 1 and len(group.messages) == last - first + 1


def _digest(data: Data) -> bytes:
    octets = data if isinstance(data, bytes) else str(data).encode(errors="surrogatepass")
    return blake2b(octets, digest_size=16).digest()
