"""How long changes are kept against how far their readers are: the forecast, and what a run does about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.alerts import retention_low
from floodmark.core.schema import TableName
from floodmark.core.upkeep import (
    HOLD_MINUTES,
    Mark,
    OnLow,
    RetentionSettings,
    RetentionStatus,
    decide_retention,
    forecast_loss,
    pace_of,
)
from lsns import lsn

NEWEST = datetime(2026, 5, 1, 12)
DAY = 1440
RAISE = RetentionSettings(
    keep_minutes=3 * DAY, ceiling_minutes=14 * DAY, headroom_limit_seconds=86_400, on_low=OnLow.RAISE_RETENTION
)


def mark(age_hours: float, pace: float = 0.0, table: str = "Orders") -> Mark:
    at = NEWEST - timedelta(hours=age_hours)
    return Mark("shop", TableName("dbo", table), f"dbo_{table}", lsn(9), at, pace)


def seen(retention_minutes: int, threshold: int = 5000) -> RetentionStatus:
    return RetentionStatus(retention_minutes, threshold, NEWEST)


def test_mark_that_does_not_move_is_lost_when_the_rest_of_the_retention_has_passed() -> None:
    forecast = forecast_loss([mark(30)], NEWEST, 3 * DAY)
    assert forecast is not None
    assert (forecast.headroom_seconds, forecast.forecast_seconds) == (42 * 3600, 42 * 3600)


def test_mark_at_half_the_pace_of_the_log_has_twice_the_time() -> None:
    forecast = forecast_loss([mark(30, pace=0.5)], NEWEST, 3 * DAY)
    assert forecast is not None
    assert (forecast.headroom_seconds, forecast.forecast_seconds) == (42 * 3600, 84 * 3600)


def test_the_forecast_is_of_the_mark_that_is_lost_first_and_not_of_the_oldest() -> None:
    forecast = forecast_loss([mark(30, pace=1.0), mark(20, table="Lines")], NEWEST, 3 * DAY)
    assert forecast is not None
    assert str(forecast.mark.table) == "dbo.Lines"


def test_without_marks_nothing_can_be_lost() -> None:
    step = decide_retention(seen(3 * DAY), RAISE, [])
    assert (step.forecast, step.retention_minutes, step.low) == (None, None, False)


def test_pace_is_the_way_over_the_time_and_never_backward() -> None:
    assert pace_of(NEWEST, NEWEST - timedelta(hours=3), 6 * 3600) == 0.5
    assert pace_of(NEWEST, NEWEST + timedelta(hours=3), 6 * 3600) == 0.0
    assert pace_of(NEWEST, None, None) == 0.0


marks = st.lists(st.builds(mark, st.floats(0, 400), st.floats(0, 3)), max_size=4)
retentions = st.integers(1, 30 * DAY) | st.just(HOLD_MINUTES)
settings = st.builds(
    RetentionSettings,
    keep_minutes=st.integers(60, 10 * DAY),
    ceiling_minutes=st.integers(60, 30 * DAY),
    headroom_limit_seconds=st.integers(3600, 5 * 86_400),
    on_low=st.sampled_from(OnLow),
)


def after(step_minutes: int | None, before: int) -> int:
    return before if step_minutes is None else step_minutes


@given(marks, retentions, settings)
def test_a_second_run_at_once_changes_nothing(found: list[Mark], current: int, wanted: RetentionSettings) -> None:
    first = decide_retention(seen(current), wanted, found)
    second = decide_retention(seen(after(first.retention_minutes, current)), wanted, found)
    assert second.retention_minutes is None
    assert second.low == first.low


@given(marks, retentions, settings)
def test_the_retention_is_never_lowered_to_where_a_mark_would_be_short_of_time(
    found: list[Mark], current: int, wanted: RetentionSettings
) -> None:
    step = decide_retention(seen(current), wanted, found)
    if step.retention_minutes is not None and step.retention_minutes < current:
        forecast = forecast_loss(found, NEWEST, step.retention_minutes)
        assert forecast is None or forecast.forecast_seconds >= wanted.headroom_limit_seconds


@given(marks, retentions, settings)
def test_the_headroom_that_the_policy_can_give_is_given(
    found: list[Mark], current: int, wanted: RetentionSettings
) -> None:
    step = decide_retention(seen(current), wanted, found)
    kept = after(step.retention_minutes, current)
    forecast = forecast_loss(found, NEWEST, kept)
    short = forecast is not None and forecast.forecast_seconds < wanted.headroom_limit_seconds - 1
    if wanted.on_low is OnLow.HOLD_CLEANUP:
        assert not short
    if short:
        assert step.low
        assert step.exhausted is (wanted.on_low is not OnLow.ALERT)
        assert wanted.keep_minutes is not None
        if wanted.on_low is OnLow.RAISE_RETENTION:
            assert kept == max(wanted.ceiling_minutes, wanted.keep_minutes, current)


def test_a_retention_that_was_raised_is_given_back_when_the_mark_has_caught_up() -> None:
    raised = decide_retention(seen(3 * DAY), RAISE, [mark(60)])
    assert raised.retention_minutes == 3 * DAY + 3 * DAY // 4
    assert (raised.low, raised.exhausted) == (True, False)
    nearly = decide_retention(seen(raised.retention_minutes), RAISE, [mark(46)])
    assert (nearly.retention_minutes, nearly.low) == (None, True)
    restored = decide_retention(seen(raised.retention_minutes), RAISE, [mark(1)])
    assert (restored.retention_minutes, restored.low) == (3 * DAY, False)


def test_a_mark_that_falls_further_behind_raises_the_retention_up_to_the_ceiling_and_no_further() -> None:
    current, steps = 3 * DAY, []
    for age_hours in range(40, 400, 10):
        step = decide_retention(seen(current), RAISE, [mark(age_hours)])
        current = after(step.retention_minutes, current)
        steps.append((current, step.exhausted))
    assert steps[0] == (3 * DAY, False)
    assert steps[-1] == (14 * DAY, True)
    assert steps == sorted(steps)


def test_a_retention_beyond_the_ceiling_is_not_lowered_while_a_mark_needs_it() -> None:
    by_hand = 30 * DAY  # for a pipeline that has been stopped for fifteen days
    step = decide_retention(seen(by_hand), RAISE, [mark(15 * 24)])
    assert (step.retention_minutes, step.low, step.exhausted) == (None, True, False)
    assert decide_retention(seen(by_hand), RAISE, [mark(60)]).retention_minutes == 14 * DAY


def test_held_cleanup_is_given_back() -> None:
    hold = replace(RAISE, on_low=OnLow.HOLD_CLEANUP)
    held = decide_retention(seen(3 * DAY), hold, [mark(60)])
    assert held.retention_minutes == HOLD_MINUTES
    assert str(held.forecast) == (
        "cleanup does not pass the watermark of dbo.Orders in pipeline shop, as changes are kept forever"
    )
    said = retention_low("shop", held)
    assert said.what.endswith("Now cleanup is held, because it would soon pass a watermark.")
    assert "`floodmark status shop`" in said.do
    assert decide_retention(seen(HOLD_MINUTES), hold, [mark(60)]).retention_minutes is None
    assert decide_retention(seen(HOLD_MINUTES), hold, [mark(1)]).retention_minutes == 3 * DAY


def test_retention_that_was_raised_is_reported_with_how_long_it_lasts() -> None:
    step = decide_retention(seen(3 * DAY), RAISE, [mark(60)])
    assert retention_low("shop", step).what == (
        "The headroom is below `headroom_limit`. With the usual retention cleanup passes the watermark of dbo.Orders "
        "in pipeline shop in 12.0 h at its pace (12.0 h if it does not move). Now the retention is 3.75 days, so that "
        "cleanup does not pass a watermark. That leaves 30.0 h at its pace (30.0 h if it does not move)."
    )


def test_policy_alert_changes_no_retention_and_says_so_in_time() -> None:
    reported = RetentionSettings()
    assert not decide_retention(seen(3 * DAY), reported, [mark(47)]).low
    step = decide_retention(seen(3 * DAY), reported, [mark(49)])
    assert (step.low, step.exhausted, step.retention_minutes) == (True, False, None)


def test_threshold_is_set_where_it_differs() -> None:
    wanted = replace(RAISE, threshold=700)
    assert decide_retention(seen(3 * DAY), wanted, []).threshold == 700
    assert decide_retention(seen(3 * DAY, threshold=700), wanted, []).threshold is None
