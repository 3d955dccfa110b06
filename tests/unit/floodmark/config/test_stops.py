"""When a planned stop is on: days, several windows, and the hours that a change of clocks skips or repeats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.config.sections import CaptureConfig, planned_stop

DAYTIME = {"stop": "0 8 * * 1-5", "start": "0 18 * * 1-5"}


def capture(*stops: dict[str, str], zone: str = "Europe/Berlin") -> CaptureConfig:
    return CaptureConfig.model_validate({"time_zone": zone, "stops": stops})


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "is_on"),
    [
        ("2026-05-04T05:59:59", False),  # Monday, 07:59:59 in Berlin
        ("2026-05-04T06:00:00", True),
        ("2026-05-04T15:59:59", True),
        ("2026-05-04T16:00:00", False),
        ("2026-05-02T10:00:00", False),  # Saturday
        ("2026-12-07T06:59:00", False),  # winter: an hour later in UTC
        ("2026-12-07T07:00:00", True),
    ],
)
def test_stop_is_on_from_its_stop_to_its_start_on_the_clock_of_its_zone(now: str, is_on: bool) -> None:
    assert (planned_stop(capture(DAYTIME), utc(now)) is not None) is is_on


def test_stop_knows_when_it_began_and_when_it_ends() -> None:
    stop = planned_stop(capture(DAYTIME), utc("2026-05-04T10:00:00"))
    assert stop is not None
    assert (stop.since, stop.until) == (utc("2026-05-04T06:00:00"), utc("2026-05-04T16:00:00"))
    assert str(stop) == "a stop planned from 2026-05-04 08:00 to 2026-05-04 18:00 CEST"


def test_of_two_stops_at_once_the_one_that_ends_last_counts() -> None:
    both = capture(DAYTIME, {"stop": "0 12 * * *", "start": "0 20 * * *"})
    stop = planned_stop(both, utc("2026-05-04T11:00:00"))
    assert stop is not None
    assert stop.until == utc("2026-05-04T18:00:00")


def test_skipped_hour_moves_a_firing_instead_of_losing_it() -> None:
    nightly = capture({"stop": "30 2 * * *", "start": "30 4 * * *"})  # 02:30 does not exist on 2026-03-29
    assert planned_stop(nightly, utc("2026-03-29T01:29:00")) is None
    stop = planned_stop(nightly, utc("2026-03-29T01:30:00"))  # 03:30 summer time
    assert stop is not None
    assert stop.until == utc("2026-03-29T02:30:00")


@pytest.mark.parametrize(("stop", "start"), [("30 2 * * *", "0 3 * * *"), ("45 2 * * *", "15 3 * * *")])
def test_stop_that_the_skipped_hour_moves_beyond_its_start_does_not_last_until_the_next_day(
    stop: str, start: str
) -> None:
    nightly = capture({"stop": stop, "start": start})
    day = [utc("2026-03-29T00:00:00") + timedelta(minutes=15 * quarter) for quarter in range(96)]
    assert [moment for moment in day if planned_stop(nightly, moment)] == []
    assert planned_stop(nightly, utc("2026-03-30T00:50:00")) is not None  # the next night is as any other


def test_start_that_the_skipped_hour_moves_beyond_the_next_stop_is_not_lost() -> None:
    by_day = capture({"stop": "0 3 * * *", "start": "30 2 * * *"})  # capture has half an hour each night
    assert planned_stop(by_day, utc("2026-03-29T01:29:00")) is not None
    assert planned_stop(by_day, utc("2026-03-29T01:30:00")) is None


def test_repeated_hour_stops_once() -> None:
    nightly = capture({"stop": "15 2 * * *", "start": "45 2 * * *"})  # 02:00 to 03:00 comes twice on 2026-10-25
    moments = [utc("2026-10-25T00:00:00") + timedelta(minutes=minute) for minute in range(180)]
    on = [moment for moment in moments if planned_stop(nightly, moment)]
    assert (on[0], on[-1], len(on)) == (utc("2026-10-25T00:15:00"), utc("2026-10-25T00:44:00"), 30)


@given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)))
def test_a_stop_lies_around_the_moment_that_was_asked_for(at: datetime) -> None:
    now = at.replace(tzinfo=UTC)
    stop = planned_stop(capture({"stop": "0 22 * * *", "start": "0 4 * * *"}), now)
    if stop is not None:
        assert stop.since <= now < stop.until
        assert timedelta(hours=5) <= stop.until.astimezone(UTC) - stop.since.astimezone(UTC) <= timedelta(hours=7)
