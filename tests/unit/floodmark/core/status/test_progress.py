"""Lag, headroom, and whether the operator must act."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.progress import Standing, headroom_seconds, judge, lag_seconds
from floodmark.core.snapshot import Verdict
from floodmark.core.verdicts import INCIDENTS
from lsns import lsn
from source_snapshots import NOON, snapshot

HOUR = 3600.0


def test_lag_is_the_age_of_the_watermark_by_the_clock_of_the_source() -> None:
    assert lag_seconds(lsn(50), NOON - timedelta(minutes=3), snapshot(newest=100)) == 180


def test_lag_over_a_clock_that_was_set_forward_is_not_counted_an_hour_too_long() -> None:
    observed = snapshot(newest=100, clock_ahead_seconds=HOUR)
    assert lag_seconds(lsn(50), NOON - timedelta(minutes=63), observed) == 180
    assert lag_seconds(lsn(50), NOON - timedelta(minutes=3), observed) == 0


def test_lag_is_nothing_when_the_source_has_nothing_newer() -> None:
    assert lag_seconds(lsn(100), NOON - timedelta(hours=3), snapshot(newest=100)) == 0


def test_lag_is_unknown_without_a_watermark() -> None:
    assert lag_seconds(None, None, snapshot()) is None


@given(st.integers(0, 10_000_000), st.integers(1, 52_494_800))
def test_headroom_and_age_of_the_watermark_make_the_retention(age: int, retention: int) -> None:
    headroom = headroom_seconds(NOON - timedelta(seconds=age), NOON, retention, Verdict.READY)
    assert headroom == max(retention * 60 - age, 0)


def test_headroom_of_an_expired_table_is_gone_whatever_the_clock_says() -> None:
    assert headroom_seconds(NOON, NOON, 4320, Verdict.EXPIRED) == 0


@pytest.mark.parametrize(("watermark_at", "retention"), [(None, 4320), (NOON, None)])
def test_headroom_is_unknown_without_a_watermark_or_a_retention(watermark_at: None, retention: int | None) -> None:
    assert headroom_seconds(watermark_at, NOON, retention, Verdict.READY) is None


@pytest.mark.parametrize("verdict", [verdict for verdict, error in INCIDENTS.items() if not error.retryable])
def test_verdict_that_ends_a_run_is_an_incident(verdict: Verdict) -> None:
    assert judge(verdict, 0.0, HOUR, lag_limit_seconds=HOUR) == (Standing.INCIDENT, verdict.value)


@pytest.mark.parametrize(
    ("verdict", "lag", "headroom", "standing"),
    [
        (None, None, None, Standing.FINE),
        (Verdict.REPLICA_BEHIND, 0.0, HOUR, Standing.ATTENTION),
        (Verdict.READY, 3600.0, 72 * HOUR, Standing.FINE),
        (Verdict.READY, 3601.0, 72 * HOUR, Standing.ATTENTION),
        (Verdict.CAPTURE_LAGGING, 0.0, None, Standing.ATTENTION),
        (Verdict.NOT_CAPTURED_YET, None, None, Standing.ATTENTION),
        (Verdict.READY, 0.0, 18 * HOUR, Standing.FINE),
        (Verdict.READY, 0.0, 17.9 * HOUR, Standing.ATTENTION),
        (Verdict.READY, 0.0, 0.0, Standing.INCIDENT),
        (Verdict.REPAIRING, 0.0, 0.0, Standing.ATTENTION),
    ],
)
def test_standing_follows_verdict_lag_and_headroom(
    verdict: Verdict | None, lag: float | None, headroom: float | None, standing: Standing
) -> None:
    found, reason = judge(verdict, lag, headroom, lag_limit_seconds=HOUR, retention_minutes=72 * 60)
    assert found is standing
    assert bool(reason) is (standing is not Standing.FINE)


def test_rows_in_quarantine_want_attention() -> None:
    found = judge(Verdict.CAUGHT_UP, 0.0, None, lag_limit_seconds=HOUR, waiting_rows=1)
    assert found == (Standing.ATTENTION, "1 row waits in quarantine")
    late = judge(Verdict.READY, 2 * HOUR, None, lag_limit_seconds=HOUR, waiting_rows=2)
    assert late[1].startswith("lags by")


@pytest.mark.parametrize("verdict", [Verdict.EXPIRED, Verdict.INSTANCE_REPLACED, Verdict.AHEAD_OF_SOURCE])
def test_gap_that_the_next_run_repairs_wants_attention_only(verdict: Verdict) -> None:
    found = judge(verdict, 0.0, 0.0, lag_limit_seconds=HOUR, repairs_itself=True)
    assert found == (Standing.ATTENTION, verdict.value)
