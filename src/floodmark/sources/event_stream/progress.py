"""The progress of a stream: the messages beyond the marks of tables, and the age of the oldest of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from floodmark.core.schema import TableName
from floodmark.core.source.feed import MemberMark
from floodmark.core.status.progress import Unread
from floodmark.sources.event_stream.envelope import parse_envelope
from floodmark.sources.event_stream.faults import EventFaultError
from floodmark.sources.event_stream.marks import PartitionMark
from floodmark.sources.event_stream.transport import EventStream, PartitionEnds, StreamGapError

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
