"""``SegmentJoiner``: the segments of an event become one event again.

A server splits the data of a large event over several messages, which may arrive in any order and more than once. The
parts are no JSON by themselves. Events of one message pass at once.

The first segment has index 0 or 1. A group that lacks segment 0 has the indices of a whole one that begins at 1. The
data decides: it begins with the name of one of its two parts, and no part of it that lacks the beginning does
(docs/reference/event_stream.md, "Segments"). So each group shows its own base, also where servers of two generations
write to one topic.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from floodmark.sources.event_stream.change import read_data, read_event_columns, read_object
from floodmark.sources.event_stream.envelope import Data, Envelope, Segment, Split, is_alone
from floodmark.sources.event_stream.faults import PoisonError

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
