"""A capture job that does not run is no incident while that is planned, and one at any other time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from floodmark.core.capture import PlannedStop
from floodmark.core.position import NoPosition
from floodmark.core.snapshot import Verdict
from floodmark.core.verdicts import INCIDENTS, classify
from source_snapshots import ORDERS, snapshot, state, table_seen

STOP = PlannedStop(datetime(2026, 5, 1, 8, tzinfo=UTC), datetime(2026, 5, 1, 18, tzinfo=UTC))
STOPPED = {"capture_running": False}
UNKNOWN_AND_SILENT = {"capture_running": None, "seconds_behind": 5000.0}


@pytest.mark.parametrize("seen", [STOPPED, UNKNOWN_AND_SILENT])
def test_stopped_job_is_an_incident_only_outside_a_planned_stop(seen: dict[str, Any]) -> None:
    observed = snapshot(table_seen(), **seen)
    assert classify(table_seen(), observed, state(100)).verdict is Verdict.CAPTURE_STOPPED
    planned = classify(table_seen(), observed, state(100), planned_stop=STOP)
    assert planned.verdict is Verdict.CAUGHT_UP
    assert "planned from 2026-05-01 08:00 to 2026-05-01 18:00 UTC" in planned.cause


def test_job_that_was_started_only_just_after_a_planned_stop_is_not_said_to_lag() -> None:
    observed = snapshot(table_seen(), capture_running=True, seconds_behind=36_000.0)
    assert classify(table_seen(), observed, state(100)).verdict is Verdict.CAPTURE_LAGGING
    planned = classify(table_seen(), observed, state(100), planned_stop=STOP)
    assert planned.verdict is Verdict.CAUGHT_UP
    assert "around a stop planned from" in planned.cause


def test_silence_of_a_server_without_an_agent_is_not_excused_by_a_stop_that_does_not_reach_it() -> None:
    observed = snapshot(table_seen(), has_agent=False, **UNKNOWN_AND_SILENT)
    planned = classify(table_seen(), observed, state(100), planned_stop=STOP)
    assert planned.verdict is Verdict.CAPTURE_STOPPED
    assert "sp_cdc_start_job" not in planned.hint


def test_replica_on_which_nothing_comes_says_nothing_of_a_job_of_its_own() -> None:
    observed = snapshot(table_seen(), is_replica=True, **UNKNOWN_AND_SILENT)
    silent = classify(table_seen(), observed, state(100))
    assert silent.verdict is Verdict.CAPTURE_STOPPED
    assert "the capture job" not in silent.cause
    assert "sp_cdc_start_job" not in silent.hint
    assert classify(table_seen(), observed, state(100), planned_stop=STOP).verdict is Verdict.CAUGHT_UP


def test_table_enabled_in_a_planned_stop_waits_for_its_end() -> None:
    new = table_seen(oldest=NoPosition.NULL)
    planned = classify(new, snapshot(new, **STOPPED), None, planned_stop=STOP)
    assert planned.verdict is Verdict.NOT_CAPTURED_YET
    assert "planned" in planned.cause


@pytest.mark.parametrize("watermark", [50, 3, 200])
def test_planned_stop_hides_no_other_verdict(watermark: int) -> None:
    observed = snapshot(table_seen(), **STOPPED)
    usual = classify(table_seen(), observed, state(watermark))
    assert classify(table_seen(), observed, state(watermark), planned_stop=STOP) == usual
    assert usual.verdict in (Verdict.READY, *INCIDENTS)
    assert usual.table == ORDERS
