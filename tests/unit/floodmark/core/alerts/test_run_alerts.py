"""Alerts about runs that fail or are late, and about tables that are late."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta, timezone

import pytest

from floodmark.core.alerts import LAG, REPLAY_FAILED, RUN_FAILED, RunFailure, data_interval, lag, run_failed, run_late
from floodmark.core.errors import (
    CaptureStoppedError,
    DataQualityError,
    FloodmarkError,
    SourceUnavailableError,
    WarehouseAdminError,
    WindowExpiredError,
)
from floodmark.core.schema import TableName
from floodmark.core.status import TableMeasure

PLACE = {"dag_id": "cdc_shop", "run_id": "r1", "task_id": "load"}
STOPPED = CaptureStoppedError("dbo.Orders", "the capture job does not run.", "Start it.")


def test_failed_run_is_reported_with_what_its_error_says() -> None:
    alert = run_failed(RUN_FAILED, "shop", RunFailure.of(STOPPED), **PLACE)
    assert (alert.what, alert.do) == ("dbo.Orders: the capture job does not run.", "Start it.")
    assert (alert.kind, alert.subject, alert.where) == ("run_failed", "shop", "DAG cdc_shop, run r1, task load")


def test_runs_that_fail_for_one_cause_are_one_event_and_for_two_causes_two() -> None:
    errors = [STOPPED, CaptureStoppedError("dbo.Orders", "still."), SourceUnavailableError("dbo.Orders", "away.")]
    keys = [
        run_failed(RUN_FAILED, "shop", RunFailure.of(error), dag_id="d", run_id=str(number), task_id="t").event_key
        for number, error in enumerate(errors)
    ]
    assert keys[0] == keys[1] != keys[2]


def test_task_that_was_killed_is_reported_although_it_left_no_word() -> None:
    alert = run_failed(RUN_FAILED, "shop", None, **PLACE)
    assert "it was killed" in alert.what
    assert alert.event_key == "run_failed:shop:silent:load"


def test_detail_of_an_error_stays_in_the_house() -> None:
    error = WarehouseAdminError("dbo.Orders", "a constraint refuses rows.", "Drop it.", "Key (Email)=(4711)")
    assert "4711" not in str(asdict(RunFailure.of(error)))
    assert "4711" not in str(run_failed(RUN_FAILED, "shop", RunFailure.of(error), **PLACE))


def test_failed_backfill_is_an_alert_of_its_own_that_frightens_nobody() -> None:
    alert = run_failed(REPLAY_FAILED, "shop", RunFailure.of(STOPPED), **PLACE, part="i")
    assert (alert.kind, alert.part) == ("replay_failed", "i")
    assert alert.event_key != run_failed(RUN_FAILED, "shop", RunFailure.of(STOPPED), **PLACE).event_key
    assert "No new rows" not in alert.means
    assert "the scheduled runs go on" in alert.means


def test_data_interval_is_the_same_in_every_zone() -> None:
    begin, end = datetime(2026, 5, 1, 2, tzinfo=UTC), datetime(2026, 5, 1, 3, tzinfo=UTC)
    east = timezone(timedelta(hours=2))
    assert data_interval(begin, end) == data_interval(begin.astimezone(east), end.astimezone(east))
    assert data_interval(begin, end) != data_interval(begin, begin)


def test_values_that_broke_a_rule_stay_in_the_house() -> None:
    error = DataQualityError("dbo.Orders", "rows broke rule r.", "Change the rule.", "such as key 4711")
    alert = str(run_failed(RUN_FAILED, "shop", RunFailure.of(error), **PLACE))
    assert "rows broke rule r." in alert
    assert "4711" not in alert


def test_failure_survives_what_airflow_makes_of_it() -> None:
    left = RunFailure.of(STOPPED)
    assert RunFailure.parse(json.loads(json.dumps(asdict(left)))) == left


@pytest.mark.parametrize("left", [None, "text", {}, {"error": "E", "subject": "s", "message": 3, "hint": ""}])
def test_what_cannot_be_read_counts_as_no_word(left: object) -> None:
    assert RunFailure.parse(left) is None


def test_every_error_makes_an_alert_that_lacks_nothing() -> None:
    for error in (FloodmarkError("shop", "it failed."), SourceUnavailableError("shop", "away.", "Wait.")):
        run_failed(RUN_FAILED, "shop", RunFailure.of(error), **PLACE)


def test_late_run_names_its_limit_and_when_it_was_queued() -> None:
    alert = run_late("shop", "r1", "2026-05-01 12:00:00 UTC", 900)
    assert "has not ended within 15 min" in alert.what
    assert alert.since == "2026-05-01 12:00:00 UTC"


def test_lag_names_the_latest_tables_and_counts_the_others() -> None:
    late = [TableMeasure(TableName("dbo", name), 900.0 + 960 * index, None) for index, name in enumerate("ABCDE")]
    alert = lag("shop", late, 600, datetime(2026, 5, 1, 12))
    assert alert.what == (
        "Behind the source: dbo.E by 79 min, dbo.D by 63 min, dbo.C by 47 min and 2 more; "
        "the limit is 10 min (`max_lag`)."
    )
    assert alert.where == "pipeline shop"
    assert (alert.kind, alert.since) == (LAG, "2026-05-01 12:00:00, by the source's clock")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(61, "61 s"), (245.2, "4 min 5 s"), (299.7, "5 min"), (7200, "120 min"), (36_000, "10.0 h")],
)
def test_lag_is_reported_as_precisely_as_matters(seconds: float, said: str) -> None:
    late = [TableMeasure(TableName("dbo", "A"), seconds, None)]
    assert f"dbo.A by {said};" in lag("shop", late, 60, datetime(2026, 5, 1, 12)).what


def test_run_that_failed_for_a_gap_says_that_the_other_tables_go_on() -> None:
    gap = RunFailure.of(WindowExpiredError("dbo.Orders", "expired: cleaned up.", "Reload the table."))
    assert "The others go on" in run_failed(RUN_FAILED, "shop", gap, **PLACE).means
    assert "The others go on" not in run_failed(RUN_FAILED, "shop", RunFailure.of(STOPPED), **PLACE).means
    assert "The others go on" not in run_failed(REPLAY_FAILED, "shop", gap, **PLACE).means
