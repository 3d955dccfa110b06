"""Segments become their event, in any order, and contradictions are faults of their group alone."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import schemaless_writer

from floodmark.sources.event_stream.change import parse_change
from floodmark.sources.event_stream.envelope import DATA_SCHEMA, Segment, parse_envelope, read_avro_data
from floodmark.sources.event_stream.rows import FaultyGroup, JoinedEvent, SegmentJoiner, StreamMessage

WHOLE = json.loads((Path(__file__).parent / "examples" / "update.json").read_bytes())
DATA: str = WHOLE["data"]
OTHER_ID = WHOLE["logicalid"].replace("0350", "0351")
TIME = "2026-01-01T00:00:00.000Z"
Outcomes = tuple[JoinedEvent | FaultyGroup, ...]


def pieces(count: int, data: str = DATA) -> list[str]:
    size = -(-len(data) // count)
    return [data[start : start + size] for start in range(0, len(data), size)]


def message(offset: int, data: str, topic: str = "t", **attributes: Any) -> StreamMessage:
    shown = {name: value for name, value in WHOLE.items() if not name.startswith("split")}
    body = json.dumps(shown | attributes | {"data": data}).encode()
    return StreamMessage(topic, 0, offset, body, parse_envelope(body))


def segments(count: int, base: int = 0, **attributes: Any) -> list[StreamMessage]:
    parts = pieces(count)
    return [
        message(place, part, segmentindex=base + place, finalsegment=place == count - 1, **attributes)
        for place, part in enumerate(parts)
    ]


def splits(count: int) -> list[StreamMessage]:
    return [message(place, part, splitindex=place, splittotalcnt=count) for place, part in enumerate(pieces(count))]


def add_all(joiner: SegmentJoiner, messages: list[StreamMessage]) -> list[JoinedEvent | FaultyGroup]:
    return [outcome for each in messages for outcome in joiner.add(each)]


def only_event(outcomes: list[JoinedEvent | FaultyGroup]) -> JoinedEvent:
    (outcome,) = outcomes
    assert isinstance(outcome, JoinedEvent)
    return outcome


def only_fault(outcomes: list[JoinedEvent | FaultyGroup]) -> FaultyGroup:
    (outcome,) = outcomes
    assert isinstance(outcome, FaultyGroup)
    assert "Anna" not in outcome.reason
    return outcome


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_segments_in_any_order_are_joined(base: int, order: tuple[int, ...]) -> None:
    sent = segments(3, base)
    joined = only_event(add_all(SegmentJoiner(), [sent[place] for place in order]))
    assert joined.envelope.data == DATA
    assert joined.messages == tuple(sent)
    assert parse_change(joined.envelope).key == {"purchase_id": "105"}


def test_group_without_segment_0_waits_although_its_indices_seem_whole() -> None:
    joiner, sent = SegmentJoiner(), segments(3)
    add_all(joiner, segments(3, 1, logicalid=OTHER_ID))
    assert add_all(joiner, [sent[2], sent[1]]) == []
    assert only_event(add_all(joiner, [sent[0]])).envelope.data == DATA


def test_end_of_a_datum_that_is_a_datum_too_waits_for_its_beginning() -> None:
    """Hypothesis found it: the name and type of the last column, and what follows, are read as database to table."""
    lsn = "00000001:00000000:0000"
    transaction = {"commitlsn": lsn, "beginlsn": lsn, "sequencenumber": 1, "finalevent": False, "committime": TIME}
    columns = [{"name": name, "type": "int", "index": index} for index, name in ((0, "1"), (4, "0"))]
    names = {"db": "d", "schema": "s", "tbl": "t", "cols": columns, "pkkey": [{"columnname": "1", "value": ""}]}
    row = {"old": "{}", "current": '{"1": "", "0": null}'}
    written = BytesIO()
    schemaless_writer(written, DATA_SCHEMA, {"eventsource": names | {"transaction": transaction}, "eventrow": row})
    data = written.getvalue()
    cut = data.rindex(b"\x020\x06int")
    assert read_avro_data(data[cut:])["eventsource"]["schema"] == "int"
    whole = message(0, DATA, segmentindex=0, finalsegment=True)
    for parts in ((data[:cut], data[cut:]), (data[:cut], data[cut : cut + 30], data[cut + 30 :])):
        joiner = SegmentJoiner()
        sent = [
            replace(whole, envelope=replace(whole.envelope, data=part, place=Segment(place, place == len(parts) - 1)))
            for place, part in enumerate(parts)
        ]
        assert add_all(joiner, sent[1:]) == []
        assert only_event(add_all(joiner, sent[:1])).envelope.data == data


def test_second_segment_of_two_is_no_whole_event() -> None:
    joiner, sent = SegmentJoiner(), segments(2)
    assert add_all(joiner, [sent[1]]) == []
    assert only_event(add_all(joiner, [sent[0]])).messages == tuple(sent)


@pytest.mark.parametrize("index", [0, 1])
def test_whole_event_passes_at_once(index: int) -> None:
    sent = message(7, DATA, segmentindex=index, finalsegment=True)
    joiner = SegmentJoiner()
    assert only_event(add_all(joiner, [sent])) == JoinedEvent(sent.envelope, (sent,))
    assert joiner.take_incomplete() == ()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_first_generation_is_joined_by_its_number(order: tuple[int, ...]) -> None:
    sent = splits(3)
    joined = only_event(add_all(SegmentJoiner(), [sent[place] for place in order]))
    assert (joined.envelope.data, joined.envelope.place) == (DATA, Segment(0, True))


def test_equal_duplicates_are_dropped_before_and_after_the_end() -> None:
    joiner, sent = SegmentJoiner(), segments(3)
    only_event(add_all(joiner, [sent[0], sent[0], sent[2], sent[1], sent[1]]))
    assert add_all(joiner, sent) == []
    assert joiner.take_incomplete() == ()


def test_different_duplicate_makes_the_group_faulty_and_what_follows_it() -> None:
    joiner, sent = SegmentJoiner(), segments(3)
    changed = message(9, "other", segmentindex=0, finalsegment=False)
    fault = only_fault(add_all(joiner, [sent[0], sent[1], changed]))
    assert fault.messages == (sent[0], sent[1], changed)
    assert only_fault(add_all(joiner, [sent[2]])).messages == (sent[2],)
    assert joiner.waiting_bytes == 0


def test_different_duplicate_after_the_end_is_faulty_alone() -> None:
    joiner = SegmentJoiner()
    only_event(add_all(joiner, segments(3)))
    changed = message(9, "other", segmentindex=0, finalsegment=False)
    assert only_fault(add_all(joiner, [changed])).messages == (changed,)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ([*segments(3)[:1], message(9, "x", splitindex=1, splittotalcnt=3)], "number"),
        ([*splits(3)[:1], message(9, "x", splitindex=1, splittotalcnt=4)], "number"),
        ([*splits(3)[:1], message(9, "x", segmentindex=1, finalsegment=False)], "generations"),
        ([segments(3)[2], message(9, "x", segmentindex=5, finalsegment=False)], "after the final one"),
        ([segments(3)[2], message(9, "x", segmentindex=1, finalsegment=True)], "not the last one"),
        ([segments(3)[1], message(9, "x", segmentindex=0, finalsegment=False, operation="INS")], "operation"),
        ([message(1, DATA, splitindex=0, splittotalcnt=2), message(2, "x", splitindex=2, splittotalcnt=2)], "no event"),
        (
            [message(1, DATA, segmentindex=0, finalsegment=False), message(2, "x", segmentindex=1, finalsegment=True)],
            "no event",
        ),
    ],
)
def test_contradiction_is_a_fault_of_the_group(sent: list[StreamMessage], reason: str) -> None:
    fault = only_fault(add_all(SegmentJoiner(), sent))
    assert reason in fault.reason
    assert fault.messages == tuple(sent)


def test_topics_do_not_mix() -> None:
    sent = segments(2)
    away = message(1, pieces(2)[1], "other", segmentindex=1, finalsegment=True)
    assert add_all(SegmentJoiner(), [sent[0], away]) == []


def test_incomplete_groups_are_carried_to_another_joiner() -> None:
    first, second = SegmentJoiner(), SegmentJoiner()
    sent, others = segments(3), segments(4, 1, logicalid=OTHER_ID)
    add_all(first, [sent[2], others[0], sent[0]])
    carried = first.take_incomplete()
    assert carried == ((sent[2], sent[0]), (others[0],))
    assert (first.waiting_bytes, first.take_incomplete()) == (0, ())
    assert second.put_back(carried) == ()
    assert second.waiting_bytes == sum(len(each.body) for each in (sent[2], sent[0], others[0]))
    assert only_event(add_all(second, [sent[1]])).messages == tuple(sent)
    assert only_event(add_all(second, others[1:])).messages == tuple(others)


def test_oldest_group_is_faulty_over_the_limit() -> None:
    old, new = segments(3), segments(3, logicalid=OTHER_ID)
    joiner = SegmentJoiner(sum(len(each.body) for each in (old[0], *new[:2])))
    assert add_all(joiner, [old[0], new[0]]) == []
    assert add_all(joiner, [new[1]]) == []
    fault = only_fault(add_all(joiner, [old[1]]))
    assert fault.messages == (old[0], old[1])
    assert only_event(add_all(joiner, [new[2]])).messages == tuple(new)
    assert joiner.waiting_bytes == 0
