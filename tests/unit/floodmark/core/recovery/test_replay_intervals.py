"""Which interval a replay means, on clocks that repeat and skip hours, and what of it each table takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from floodmark.core.errors import (
    ConfigError,
    FloodmarkError,
    SourcePermissionError,
    SourceRewoundError,
    WindowExpiredError,
)
from floodmark.core.plan import finishing_command, is_replay_lane, replay_lane
from floodmark.core.position import Interval, Lsn, NoPosition
from floodmark.core.recovery import (
    LocalSpan,
    MappedTimes,
    NoInterval,
    ReplayRecords,
    WholeLoad,
    covering_times,
    interval_of,
    local_span,
    parse_bounds,
    plan_replay,
)
from floodmark.core.schema import TableName
from lsns import lsn
from source_snapshots import ITEMS, NOON, ORDERS, instance, settings, snapshot, state, table_seen

ZONES = [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kolkata")]
CHANGES_OF_THE_CLOCK = [
    datetime(2026, 3, 29, 1),
    datetime(2026, 10, 25, 1),
    datetime(2026, 11, 1, 6),
    datetime(2026, 3, 8, 7),
    datetime(2026, 4, 4, 15),
    datetime(2026, 10, 3, 15, 30),
]
"""In UTC, of the zones above."""
TICK = timedelta(milliseconds=10) / 3
QUARTER = timedelta(minutes=15)


def local_clock(at_utc: datetime, zone: ZoneInfo) -> datetime:
    """Return the time that a server in the zone writes: local, without an offset, in the ticks of datetime."""
    local = in_zone(at_utc, zone)
    return local.replace(microsecond=0) + round(timedelta(microseconds=local.microsecond) / TICK) * TICK


def earliest_from(at_utc: datetime, zone: ZoneInfo) -> datetime:
    """Return the time for which ``read_local_time.sql`` asks the server."""
    quarter = at_utc.replace(minute=at_utc.minute // 15 * 15, second=0, microsecond=0)
    return min(in_zone(moment, zone) for moment in (at_utc, *(quarter + n * QUARTER for n in range(1, 9))))


def latest_until(at_utc: datetime, zone: ZoneInfo) -> datetime:
    quarter = at_utc.replace(minute=at_utc.minute // 15 * 15, second=0, microsecond=0)
    ends = (quarter - n * QUARTER - timedelta(microseconds=1) for n in range(8))
    return max(in_zone(moment, zone) for moment in (at_utc, *ends))


def in_zone(at_utc: datetime, zone: ZoneInfo) -> datetime:
    return at_utc.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


def map_times(log: list[tuple[datetime, Lsn]], from_at: datetime, to_at: datetime) -> MappedTimes:
    """Map times as sys.fn_cdc_map_time_to_lsn does it over cdc.lsn_time_mapping."""
    return MappedTimes(
        first=min((at for time, at in log if time >= from_at), default=None),
        last=max((at for time, at in log if time <= to_at), default=None),
        reaches_before=any(time < from_at for time, _ in log),
        oldest_at=min((time for time, _ in log), default=None),
        newest_at=max(log, key=lambda entry: entry[1])[0] if log else None,
    )


near_a_change = st.builds(
    lambda change, seconds: change + timedelta(seconds=seconds),
    st.sampled_from(CHANGES_OF_THE_CLOCK),
    st.floats(-4 * 3600, 4 * 3600, allow_nan=False),
)


@example(ZONES[2], True, [datetime(2026, 4, 4, 15)], [datetime(2026, 4, 4, 14, 59, 59), datetime(2026, 10, 25, 1)])
@example(ZONES[2], True, [datetime(2026, 4, 4, 14, 59, 59)], [datetime(2026, 3, 29, 1), datetime(2026, 4, 4, 15)])
@settings_of(max_examples=300)
@given(
    st.sampled_from(ZONES),
    st.booleans(),
    st.lists(near_a_change, min_size=1, max_size=20),
    st.tuples(near_a_change, near_a_change).map(sorted),
)
def test_everything_committed_in_an_interval_is_replayed_whatever_the_clock_did(
    zone: ZoneInfo, zone_is_known: bool, commits: list[datetime], asked: list[datetime]
) -> None:
    log = [(local_clock(at, zone), lsn(number)) for number, at in enumerate(sorted(commits), 2)]
    log.insert(0, (datetime(2026, 1, 1), lsn(1)))
    today = zone.utcoffset(datetime(2026, 7, 1))
    assert today is not None

    def span(at_utc: datetime) -> LocalSpan:
        local = LocalSpan(earliest_from(at_utc, zone), latest_until(at_utc, zone)) if zone_is_known else None
        return local_span(at_utc, local, int(today.total_seconds() // 60))

    begin, end = asked
    from_at, to_at = covering_times(span(begin), span(end))
    interval = interval_of("shop", from_at, to_at, map_times(log, from_at, to_at))
    inside = [number for number, at in enumerate(sorted(commits), 2) if begin <= at <= end]
    assert all(isinstance(interval, Interval) and lsn(number) in interval for number in inside)


def test_the_first_of_two_passes_through_an_hour_is_covered_when_either_is_asked_for() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    passes = [datetime(2026, 10, 25, 0, 30), datetime(2026, 10, 25, 1, 30)]
    log = [(datetime(2026, 1, 1), lsn(1)), *((local_clock(at, berlin), lsn(n)) for n, at in enumerate(passes, 2))]
    assert log[1][0] == log[2][0]
    half_past_two = LocalSpan(log[1][0], log[1][0])
    from_at, to_at = covering_times(half_past_two, half_past_two)
    assert interval_of("shop", from_at, to_at, map_times(log, from_at, to_at)) == Interval(lsn(1), lsn(3))


def test_an_hour_that_the_clock_skipped_holds_nothing() -> None:
    at = datetime(2026, 3, 29, 2, 10)
    log = [(datetime(2026, 3, 29, 1, 59), lsn(1)), (datetime(2026, 3, 29, 3, 1), lsn(2))]
    end = at + timedelta(minutes=30)
    found = interval_of("shop", at, end, map_times(log, at, end))
    assert found == NoInterval(f"nothing was committed from {at} to {end} (the source's clock).")


def test_of_a_time_that_capture_has_not_reached_nothing_is_known() -> None:
    newest = datetime(2026, 3, 29, 1, 59)
    begin, end = newest + timedelta(minutes=1), newest + timedelta(hours=1)
    found = interval_of("shop", begin, end, map_times([(newest, lsn(1))], begin, end))
    assert isinstance(found, NoInterval)
    assert "only to 2026-03-29 01:59:00: its changes are not known yet" in found.reason


def test_times_in_the_wrong_order_are_refused() -> None:
    at = datetime(2026, 3, 29, 12)
    log = [(at - timedelta(days=1), lsn(1)), (at, lsn(2))]
    end = at - timedelta(hours=1)
    with pytest.raises(ConfigError, match="ends before it begins"):
        interval_of("shop", at, end, map_times(log, at, end))


def test_an_interval_from_before_the_log_says_expired_and_where_the_log_begins() -> None:
    at = datetime(2026, 5, 1, 12)
    log = [(at, lsn(7))]
    with pytest.raises(WindowExpiredError, match=r"expired: .* begins before the log .*2026-05-01 12:00:00"):
        interval_of("shop", at - timedelta(days=1), at, map_times(log, at - timedelta(days=1), at))
    with pytest.raises(WindowExpiredError, match="empty"):
        interval_of("shop", at, at, map_times([], at, at))


def test_bounds_of_a_person_are_refused_in_a_sentence() -> None:
    assert parse_bounds(str(lsn(3)), str(lsn(9))) == Interval(lsn(2), lsn(9))
    assert lsn(7) in parse_bounds(str(lsn(7)), str(lsn(7)))
    with pytest.raises(ConfigError, match="ends before it begins"):
        parse_bounds(str(lsn(9)), str(lsn(3)))
    with pytest.raises(ConfigError, match="there is no LSN below 0x00000001000000000000"):
        parse_bounds(str(lsn(0)), str(lsn(3)))
    with pytest.raises(ConfigError, match="not an LSN: 'yesterday'"):
        parse_bounds("yesterday", str(lsn(3)))


@pytest.mark.parametrize(
    ("forgotten", "to", "expected", "said"),
    [
        (20, 30, Interval(lsn(20), lsn(30)), f"dbo.Orders: from {lsn(20)} on, at which a key was forgotten."),
        (30, 30, None, f"dbo.Orders: nothing to replay: a key was forgotten at {lsn(30)}, and might come back."),
        (5, 30, Interval(lsn(10), lsn(30)), ""),
    ],
)
def test_changes_up_to_a_forgotten_key_are_not_replayed(
    forgotten: int, to: int, expected: Interval | None, said: str
) -> None:
    records = ReplayRecords(forgotten={ORDERS: lsn(forgotten)})
    seen = snapshot(table_seen(ORDERS, oldest=lsn(2), feed=replace(instance(ORDERS), start=lsn(1))), newest=200)
    plan = plan_replay(settings(ORDERS), seen, {ORDERS: state(50)}, Interval(lsn(10), lsn(to)), records)
    assert [table.interval for table in plan.tables] == ([expected] if expected else [])
    assert plan.left_out == ((said,) if said else ())


@given(
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.integers(5, 30),
    st.integers(1, 60),
)
def test_a_table_takes_what_lies_between_its_load_and_its_watermark_and_nothing_from_below_its_low_end(
    wanted_at: tuple[int, int], lived: tuple[int, int], low: int, other: int
) -> None:
    (after, length), (loaded, grown) = wanted_at, lived
    asked = Interval(lsn(after), lsn(after + length))
    states = {ORDERS: state(loaded + grown), ITEMS: state(other, ITEMS)}
    records = ReplayRecords(whole_loads={ORDERS: WholeLoad(1, lsn(loaded))})
    # Both instances are older than the interval: neither table was switched inside of it.
    old = [table_seen(each, oldest=lsn(low), feed=replace(instance(each), start=lsn(1))) for each in (ORDERS, ITEMS)]
    seen = snapshot(*old, newest=200)
    wanted = [
        (max(after, loaded), min(after + length, loaded + grown)),
        (after, min(after + length, other)),
    ]
    parts = [(begin, end) for begin, end in wanted if begin < end]
    if any(begin + 1 < low for begin, _ in parts):
        with pytest.raises(FloodmarkError, match=r"expired|cannot be read"):
            plan_replay(settings(ORDERS, ITEMS), seen, states, asked, records)
        return
    plan = plan_replay(settings(ORDERS, ITEMS), seen, states, asked, records)
    assert [table.interval for table in plan.tables] == [Interval(lsn(begin), lsn(end)) for begin, end in parts]
    assert all(table.watermark == states[table.source].watermark for table in plan.tables)
    said = " ".join(plan.left_out)
    assert ("dbo.Orders: nothing to replay: the whole table was read" in said) == (after + length <= loaded)
    assert (f"dbo.Orders: from {lsn(loaded)}" in said) == (after < loaded < after + length)
    assert ("dbo.Items: all of it lies above" in said) == (other <= after)


def test_a_young_table_does_not_keep_the_others_from_an_interval_of_before() -> None:
    seen = snapshot(table_seen(ORDERS, oldest=lsn(5)), table_seen(ITEMS, oldest=lsn(40)))
    states = {ORDERS: state(50), ITEMS: state(50, ITEMS)}
    records = ReplayRecords(whole_loads={ORDERS: WholeLoad(1, lsn(6)), ITEMS: WholeLoad(2, lsn(45), NOON)})
    plan = plan_replay(settings(ORDERS, ITEMS), seen, states, Interval(lsn(10), lsn(30)), records)
    assert [table.source for table in plan.tables] == [ORDERS]
    (said,) = plan.left_out
    assert said.startswith(f"dbo.Items: nothing to replay: the whole table was read at {lsn(45)} (2026-05-01 12:00:00)")
    again = plan_replay(settings(ORDERS, ITEMS), seen, states, Interval(lsn(10), lsn(48)), records)
    assert [table.interval for table in again.tables] == [Interval(lsn(10), lsn(48)), Interval(lsn(45), lsn(48))]


def test_a_table_that_was_switched_inside_the_interval_is_left_out_and_the_others_are_replayed() -> None:
    switched = table_seen(ITEMS, oldest=lsn(20))
    assert switched.feed is not None
    seen = snapshot(table_seen(ORDERS, oldest=lsn(5)), replace(switched, feed=replace(switched.feed, start=lsn(20))))
    states = {ORDERS: state(50), ITEMS: state(50, ITEMS)}
    plan = plan_replay(settings(ORDERS, ITEMS), seen, states, Interval(lsn(10), lsn(30)), ReplayRecords())
    assert [table.source for table in plan.tables] == [ORDERS]
    (said,) = plan.left_out
    assert said.startswith("dbo.Items: not replayed: the interval ")
    assert "or reload the table" in said
    # Alone it has nothing that could be replayed.
    with pytest.raises(WindowExpiredError, match=r"dbo\.Items: expired"):
        plan_replay(settings(ITEMS), replace(seen, tables=seen.tables[1:]), states, plan.interval, ReplayRecords())


def test_replay_of_some_tables_has_a_lane_of_its_own_and_a_command_that_continues_it() -> None:
    interval = Interval(lsn(10), lsn(30))
    bounds = f"--from-lsn {lsn(11)} --to-lsn {lsn(30)}"
    assert finishing_command("shop", replay_lane(interval)) == f"floodmark replay shop {bounds}"
    lane = replay_lane(interval, [ORDERS, TableName("dbo", "Order Lines")])
    assert is_replay_lane(lane)
    command = f"floodmark replay shop {bounds} --table dbo.Orders --table 'dbo.Order Lines'"
    assert finishing_command("shop", lane) == command


@pytest.mark.parametrize(
    ("low_at", "low"),
    [(None, f"{lsn(20)}: "), (NOON, f"{lsn(20)} (2026-05-01 12:00:00 by the source's clock): ")],
)
def test_a_refusal_names_interval_and_low_end_with_its_time_where_the_source_has_it(
    low_at: datetime | None, low: str
) -> None:
    seen = snapshot(table_seen(ORDERS, oldest=lsn(20), oldest_at=low_at))
    with pytest.raises(WindowExpiredError) as caught:
        plan_replay(settings(ORDERS), seen, {ORDERS: state(50)}, Interval(lsn(10), lsn(30)), ReplayRecords())
    for words in ("dbo.Orders: expired", str(Interval(lsn(10), lsn(30))), f"of the capture instance, {low}"):
        assert words in str(caught.value)


def test_what_is_held_loading_or_not_loaded_is_left_out_with_the_reason() -> None:
    states = {ORDERS: state(50)}
    seen = snapshot(table_seen(ORDERS), table_seen(ITEMS))
    plan = plan_replay(
        settings(ORDERS, ITEMS), seen, states, Interval(lsn(10), lsn(30)), ReplayRecords({ORDERS: "it is held."})
    )
    assert plan.tables == ()
    assert plan.left_out == ("dbo.Orders: it is held.", "dbo.Items: it has not been loaded yet.")


@pytest.mark.parametrize(
    ("low", "newest", "error"),
    [
        (NoPosition.ZERO, 100, SourcePermissionError),
        (NoPosition.NULL, 100, SourceRewoundError),
        (NoPosition.NULL, NoPosition.NULL, SourceRewoundError),
    ],
)
def test_an_instance_without_a_low_end_is_not_replayed_from(
    low: NoPosition, newest: int | NoPosition, error: type[FloodmarkError]
) -> None:
    seen = snapshot(table_seen(ORDERS, oldest=low), newest=newest)
    with pytest.raises(error):
        plan_replay(settings(ORDERS), seen, {ORDERS: state(50)}, Interval(lsn(10), lsn(30)), ReplayRecords())


def test_a_source_that_was_set_back_is_not_replayed_from() -> None:
    with pytest.raises(SourceRewoundError):
        plan_replay(
            settings(ORDERS),
            snapshot(table_seen(ORDERS), newest=40),
            {ORDERS: state(50)},
            Interval(lsn(10), lsn(30)),
            ReplayRecords(),
        )


def test_a_capture_job_that_is_stopped_is_no_reason_not_to_replay() -> None:
    seen = replace(snapshot(table_seen(ORDERS), newest=50), capture_running=False)
    plan = plan_replay(settings(ORDERS), seen, {ORDERS: state(50)}, Interval(lsn(10), lsn(30)), ReplayRecords())
    assert len(plan.tables) == 1
