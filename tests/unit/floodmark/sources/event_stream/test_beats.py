"""When a beat of a stream has arrived, is late, and the next one is due."""

from __future__ import annotations

import pytest

from floodmark.core.capture import HeartbeatSettings
from floodmark.core.schema import TableName
from floodmark.sources.event_stream.doctor import Beat, Pulse, grant_beats, judge_beat, make_beats

TABLE = TableName("dbo", "Beat's]")
SETTINGS = HeartbeatSettings(TABLE, 900)


@pytest.mark.parametrize(
    ("age", "arrived", "expected"),
    [
        (60, 10, Pulse(has_arrived=True, waited_seconds=60, is_due=False, is_late=False)),
        (300, 10, Pulse(has_arrived=True, waited_seconds=300, is_due=True, is_late=False)),
        (90_000, 10, Pulse(has_arrived=True, waited_seconds=90_000, is_due=True, is_late=False)),
        (10, 60, Pulse(has_arrived=False, waited_seconds=10, is_due=False, is_late=False)),
        (900, 4000, Pulse(has_arrived=False, waited_seconds=900, is_due=False, is_late=False)),
        (901, 4000, Pulse(has_arrived=False, waited_seconds=901, is_due=True, is_late=True)),
        (5, 5, Pulse(has_arrived=False, waited_seconds=5, is_due=False, is_late=False)),
    ],
)
def test_beat_has_arrived_when_a_window_after_it_brought_a_change(age: float, arrived: float, expected: Pulse) -> None:
    assert judge_beat(SETTINGS, Beat(3, age, may_write=True), arrived) == expected


def test_statements_quote_the_names() -> None:
    create, insert = make_beats(TABLE)
    assert create.startswith("CREATE TABLE [dbo].[Beat's]]] (")
    assert insert.startswith("INSERT INTO [dbo].[Beat's]]] (")
    assert grant_beats(TABLE, "a]b") == "GRANT UPDATE ON [dbo].[Beat's]]] TO [a]]b];"
