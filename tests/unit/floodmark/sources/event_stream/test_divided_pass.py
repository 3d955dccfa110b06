"""A pass over a stream that is divided by partitions: who reads what, and what the marks say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from change_log import ChangeLog
from floodmark.core.plan import MemberRead
from floodmark.sources.event_stream.epochs import MOST_CARRIED_BYTES, CarriedSegment, Epoch, PartitionMark
from floodmark.sources.event_stream.reader import EventPass, unite_reads
from sqlserver_emulator.event_stream.encoding import MessageForm

NOW = datetime(2026, 3, 1, tzinfo=UTC)
EPOCH = Epoch("guid", bytes(10), NOW, None, is_marked=False)


def segments() -> list[CarriedSegment]:
    """The messages of one event."""
    log = ChangeLog("Shop", (("Id", "int", 0), ("Note", "nvarchar(max)", 1)), "Id", form=MessageForm(limit_bytes=2000))
    bodies = log.commit(({}, {"Id": "1", "Note": "note " * 1000}))
    assert len(bodies) > 2
    return [CarriedSegment(offset, NOW, body) for offset, body in enumerate(bodies)]


def read(member: str, mark: PartitionMark, before: PartitionMark | None = None) -> MemberRead:
    return MemberRead(member, str(before) if before else None, str(mark))


def test_evidence_of_one_partition_counts_for_all_of_them_and_for_all_tables() -> None:
    reads = {
        0: [read("0", PartitionMark(7, epoch=EPOCH)), read("1", PartitionMark(8))],
        1: [read("0", PartitionMark(7, epoch=replace(EPOCH, is_marked=True)))],
    }
    united = unite_reads(reads)
    assert united is not None
    marks = [PartitionMark.parse(each.after or "") for each in (*united[0], *united[1])]
    assert [mark.epoch.is_marked if mark.epoch else None for mark in marks] == [True, None, True]
    assert [mark.next for mark in marks] == [7, 8, 7]


def test_two_commits_with_one_identifier_in_two_partitions_are_evidence() -> None:
    epochs = [replace(EPOCH, lsn=(number + 1).to_bytes(10)) for number in range(2)]
    united = unite_reads({0: [read(str(number), PartitionMark(7, epoch=each)) for number, each in enumerate(epochs)]})
    assert united is not None
    assert all((epoch := PartitionMark.parse(each.after or "").epoch) and epoch.is_marked for each in united[0])


def test_reads_without_news_for_each_other_stay_as_they_are() -> None:
    first, *_ = segments()
    reads = {0: [read("0", PartitionMark(7, (first,), epoch=EPOCH)), read("1", PartitionMark(8, epoch=EPOCH))]}
    assert unite_reads(reads) == reads
    assert unite_reads({0: []}) == {0: []}


def test_segments_of_an_event_in_two_partitions_need_one_pass() -> None:
    first, second, *_ = segments()
    assert unite_reads({0: [read("0", PartitionMark(7, (first,))), read("1", PartitionMark(8, (second,)))]}) is None
    assert unite_reads({0: [read("0", PartitionMark(7, (first, second)))]}) is not None


def test_event_that_is_given_up_needs_one_pass_unless_it_was_before() -> None:
    lost = PartitionMark(7, lost="segments have not arrived")
    assert unite_reads({0: [read("0", lost, PartitionMark(5))]}) is None
    assert unite_reads({0: [read("0", lost)]}) is None
    assert unite_reads({0: [read("0", lost, replace(lost, next=5))]}) is not None


def test_too_many_segments_need_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = segments()
    assert len(first.body) + len(second.body) < MOST_CARRIED_BYTES
    monkeypatch.setattr("floodmark.sources.event_stream.reader.MOST_CARRIED_BYTES", len(first.body))
    assert unite_reads({0: [read("0", PartitionMark(7, (first,)))]}) is not None
    assert unite_reads({0: [read("0", PartitionMark(7, (first, second)))]}) is None


@pytest.mark.parametrize(
    ("messages", "most", "expected"),
    [
        ({0: 5, 1: 3, 2: 3, 3: 0}, 2, [{0, 3}, {1, 2}]),
        ({0: 5, 1: 3, 2: 3, 3: 0}, 8, [{0}, {1, 3}, {2}]),
        ({0: 5, 1: 0}, 4, [None]),
        ({0: 5, 1: 5}, 1, [None]),
        ({}, 4, [None]),
    ],
)
def test_partitions_are_divided_by_their_messages(
    messages: Mapping[int, int], most: int, expected: list[set[int] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventPass, "_messages", lambda _: messages)
    readers = EventPass({}, "Shop", None).split(most)  # type: ignore[arg-type]
    found = [None if each.only is None else set(each.only) for each in readers]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert len(found) <= most
