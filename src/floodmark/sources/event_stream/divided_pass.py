"""The marks of passes over different partitions of a stream, put together as one pass over all would have written them.

A server writes the segments of an event into one partition, unless its stream group has no partition key. So a pass
over some partitions nearly always has all that it needs, and the marks show where it has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from floodmark.core.window.members import MemberRead
from floodmark.sources.event_stream.envelope import parse_envelope
from floodmark.sources.event_stream.epochs import are_marked
from floodmark.sources.event_stream.marks import MOST_CARRIED_BYTES, PartitionMark

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
            if places.setdefault(parse_envelope(each.body).logical_id.text, member) != member:
                return True
    return carried_bytes > MOST_CARRIED_BYTES


def _with_evidence(read: MemberRead, marks: _Marks, *, is_marked: bool) -> MemberRead:
    mark = marks.get(read.member)
    if mark is None or mark.epoch is None or mark.epoch.is_marked == is_marked:
        return read
    return replace(read, after=str(replace(mark, epoch=replace(mark.epoch, is_marked=is_marked))))
