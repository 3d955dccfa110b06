"""The step that a run takes on the capture job, by one snapshot and the schedule; and whether capture is alive."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.capture import CaptureJobStatus, LogScan, PlannedStop
from floodmark.core.upkeep import Action, CaptureSettings, decide_step
from floodmark.core.verdicts import Evidence, Heartbeat, judge_liveness

AT = datetime(2026, 5, 1, 12)
NOW = AT.replace(tzinfo=UTC)
STOP = PlannedStop(NOW - timedelta(minutes=1), NOW + timedelta(hours=1))
WANTED = CaptureSettings(job={"maxtrans": 1000})


def scan(age_seconds: float = 5, transactions: int = 0, errors: int = 0, latency_seconds: int = 0) -> LogScan:
    return LogScan(AT - timedelta(seconds=age_seconds), transactions, errors, latency_seconds)


def status(**other: Any) -> CaptureJobStatus:
    made = CaptureJobStatus(
        database="Shop",
        engine_edition=3,
        taken_at=AT,
        job={"maxtrans": 1000, "maxscans": 10},
        running=True,
        log_reuse_wait="NOTHING",
        log_used_percent=5.0,
        newest_entry_at=AT - timedelta(seconds=60),
        scan=scan(),
    )
    return replace(made, **other)


HELD = {"log_reuse_wait": "REPLICATION", "scan": scan(transactions=9, latency_seconds=500)}

running = st.booleans()
table_snapshots = st.builds(
    status,
    running=running,
    log_reuse_wait=st.sampled_from(["NOTHING", "REPLICATION", "LOG_BACKUP", None]),
    log_used_percent=st.one_of(st.none(), st.floats(0, 100)),
    newest_entry_at=st.one_of(st.none(), st.integers(0, 100_000).map(lambda s: AT - timedelta(seconds=s))),
    scan=st.one_of(st.none(), st.builds(scan, st.floats(0, 1000), st.integers(0, 3), st.integers(0, 1))),
    job=st.fixed_dictionaries({"maxtrans": st.sampled_from([500, 1000])}),
)


@given(table_snapshots)
def test_outside_a_planned_stop_the_job_always_ends_running(seen: CaptureJobStatus) -> None:
    step = decide_step(seen, WANTED, None, NOW)
    assert step.action in ({Action.NOTHING, Action.RESTART} if seen.running else {Action.START})
    assert step.guard == ""


@given(table_snapshots)
def test_parameters_that_differ_are_applied_before_the_job_runs_again(seen: CaptureJobStatus) -> None:
    step = decide_step(seen, WANTED, None, NOW)
    assert bool(step.changes) == (seen.job != {"maxtrans": 1000})
    if step.changes:
        assert step.action in (Action.START, Action.RESTART)


@given(table_snapshots, st.integers(600, 3600))
def test_a_planned_stop_does_not_wait_beyond_its_limit(seen: CaptureJobStatus, waited: int) -> None:
    step = decide_step(seen, WANTED, STOP, STOP.since + timedelta(seconds=waited))
    assert step.action is not Action.WAIT
    if not step.guard:
        assert step.action in ({Action.STOP} if seen.running else {Action.NOTHING, Action.CHANGE})


@given(table_snapshots)
def test_a_stop_that_was_ended_is_never_begun_again(seen: CaptureJobStatus) -> None:
    step = decide_step(seen, WANTED, STOP, NOW, ended="the log was full")
    assert step.action in (Action.NOTHING, Action.RESTART, Action.START)
    assert step.guard == "the log was full"


OLD = {"newest_entry_at": AT - timedelta(hours=5)}
LONG_STOP = PlannedStop(NOW - timedelta(hours=5), NOW + timedelta(hours=1))


@pytest.mark.parametrize(
    ("seen", "stop", "guarded"),
    [
        ({"log_used_percent": 71.0}, STOP, True),
        ({"log_used_percent": 69.0}, STOP, False),
        ({"log_used_percent": None}, STOP, False),
        (OLD, STOP, True),
        # The log names one reason only: what it does not name may hold it all the same.
        ({"log_used_percent": 99.0, "log_reuse_wait": "LOG_BACKUP"}, STOP, True),
        ({"log_used_percent": 99.0, "log_reuse_wait": "ACTIVE_TRANSACTION"}, STOP, True),
        ({"log_used_percent": 99.0, "log_reuse_wait": None}, STOP, True),
        (
            {"log_used_percent": 60.0, "log_reuse_wait": "LOG_BACKUP", "newest_entry_at": AT - timedelta(hours=5)},
            STOP,
            False,
        ),
        (
            {"log_used_percent": None, "log_reuse_wait": "LOG_BACKUP", "newest_entry_at": AT - timedelta(hours=5)},
            STOP,
            True,
        ),
        (
            {"log_used_percent": None, "log_reuse_wait": "NOTHING", "newest_entry_at": AT - timedelta(hours=5)},
            STOP,
            False,
        ),
        # Nothing was ever captured: what is known is how long the stop has been on.
        ({"log_used_percent": 99.0, "newest_entry_at": None}, STOP, True),
        ({"newest_entry_at": None}, LONG_STOP, True),
        ({"newest_entry_at": None}, STOP, False),
    ],
)
def test_stop_is_ended_by_a_log_that_is_full_or_has_been_held_for_too_long(
    seen: dict[str, Any], stop: PlannedStop, guarded: bool
) -> None:
    step = decide_step(status(running=False, **(HELD | seen)), WANTED, stop, NOW)
    assert (step.action is Action.START) is guarded
    assert bool(step.guard) is guarded


def test_guard_says_which_reason_the_log_names() -> None:
    hidden = status(running=False, log_used_percent=99.0, log_reuse_wait="LOG_BACKUP")
    guard = decide_step(hidden, WANTED, STOP, NOW).guard
    assert "99 % full (limit 70 %); it names LOG_BACKUP" in guard
    assert "every write to the database fails (error 9002)" in guard


@pytest.mark.parametrize(
    ("seen", "caught_up"),
    [
        ({}, True),
        ({"scan": scan(transactions=4, latency_seconds=3), "log_reuse_wait": "REPLICATION"}, True),
        ({"scan": scan(), "log_reuse_wait": "REPLICATION"}, False),
        ({"scan": scan(transactions=4, latency_seconds=60)}, False),
        ({"scan": scan(errors=1)}, False),
        ({"scan": scan(age_seconds=4000)}, False),
        ({"scan": None}, False),
    ],
)
def test_capture_has_caught_up_when_its_newest_scan_says_so(seen: dict[str, Any], caught_up: bool) -> None:
    assert status(**seen).caught_up is caught_up


@pytest.mark.parametrize("edition", [5, 12])
def test_server_without_an_agent_is_neither_stopped_nor_started(edition: int) -> None:
    seen = status(engine_edition=edition, running=None, job={"maxtrans": 500})
    settings = CaptureSettings(job={"maxtrans": 1000, "pollinginterval": 2})
    step = decide_step(seen, settings, STOP, NOW)
    assert (step.action, step.changes) == (Action.CHANGE, {"maxtrans": 1000})
    assert "no Agent" in step.guard
    assert decide_step(replace(seen, job={"maxtrans": 1000}), settings, None, NOW).action is Action.NOTHING


SCHEDULED = {"running": False, "job": {"maxtrans": 1000, "continuous": 0}}


def test_job_that_scans_by_a_schedule_of_its_own_is_neither_stopped_nor_started_but_judged_by_its_scans() -> None:
    seen = status(**SCHEDULED)
    assert decide_step(seen, WANTED, None, NOW).action is Action.NOTHING
    planned = decide_step(replace(seen, running=True), WANTED, STOP, NOW)
    assert (planned.action, "continuous = 0" in planned.guard) == (Action.NOTHING, True)
    assert judge_liveness(seen, 900).alive is True
    assert judge_liveness(replace(seen, scan=scan(age_seconds=1000)), 900).alive is False


def test_parameters_of_a_job_that_scans_by_a_schedule_of_its_own_are_changed_without_a_restart() -> None:
    step = decide_step(status(**SCHEDULED), CaptureSettings(job={"maxtrans": 7, "pollinginterval": 2}), None, NOW)
    assert (step.action, step.changes) == (Action.CHANGE, {"maxtrans": 7, "pollinginterval": 2})


SPRING = {"clock_ahead_seconds": 3600.0}


@pytest.mark.parametrize(
    ("seen", "alive"),
    [
        ({"scan": scan(age_seconds=3900)}, True),
        ({"scan": scan(age_seconds=5000)}, False),
        ({"scan": scan(age_seconds=10)}, True),
        ({"scan": None, "newest_entry_at": AT - timedelta(seconds=3900)}, True),
        ({"scan": None, "newest_entry_at": AT - timedelta(seconds=4600)}, False),
    ],
)
def test_age_over_a_clock_that_was_set_forward_is_not_counted_an_hour_too_long(
    seen: dict[str, Any], alive: bool
) -> None:
    assert judge_liveness(status(**(SPRING | seen)), 900).alive is alive


def test_beat_written_before_the_clock_was_set_forward_has_the_time_it_is_given() -> None:
    waiting, late = (beats(beaten=seconds, waiting=seconds, arrived=None) for seconds in (3800, 7200))
    assert judge_liveness(status(**SPRING), 900, waiting).evidence is Evidence.SCANS
    assert judge_liveness(status(**SPRING), 900, late).alive is False


@pytest.mark.parametrize(
    ("seen", "alive", "evidence"),
    [
        ({}, True, Evidence.SCANS),
        ({"scan": scan(age_seconds=1000)}, False, Evidence.SCANS),
        ({"scan": scan(errors=2), "error": "22859: gone"}, False, Evidence.SCANS),
        ({"scan": scan(transactions=1, latency_seconds=1000)}, False, Evidence.SCANS),
        ({"scan": None}, True, Evidence.ENTRIES),
        ({"scan": None, "newest_entry_at": AT - timedelta(seconds=901)}, False, Evidence.ENTRIES),
        ({"scan": LogScan(None, 0, 0, 0), "newest_entry_at": AT - timedelta(hours=1)}, False, Evidence.ENTRIES),
        ({"scan": None, "newest_entry_at": None}, None, Evidence.NONE),
    ],
)
def test_liveness_rests_on_the_best_evidence_there_is(
    seen: dict[str, Any], alive: bool | None, evidence: Evidence
) -> None:
    judged = judge_liveness(status(**seen), 900)
    assert (judged.alive, judged.evidence) == (alive, evidence)
    assert evidence.value in str(judged)


def beats(*, beaten: float = 300, waiting: float = 300, arrived: int | None = 7) -> Heartbeat:
    """The seventh beat, so many seconds ago."""
    return Heartbeat(7, AT - timedelta(seconds=beaten), AT - timedelta(seconds=waiting), arrived, AT)


@pytest.mark.parametrize(
    ("heartbeat", "alive", "evidence"),
    [
        (beats(), True, Evidence.HEARTBEAT),
        (beats(arrived=8), True, Evidence.HEARTBEAT),
        (beats(beaten=901), True, Evidence.SCANS),
        (beats(arrived=6), True, Evidence.SCANS),
        (beats(arrived=None, waiting=900), True, Evidence.SCANS),
        (beats(arrived=6, waiting=901), False, Evidence.HEARTBEAT),
        (beats(arrived=None, waiting=901), False, Evidence.HEARTBEAT),
    ],
)
def test_heartbeat_is_the_best_evidence_while_it_proves_something(
    heartbeat: Heartbeat, alive: bool, evidence: Evidence
) -> None:
    judged = judge_liveness(status(), 900, heartbeat)
    assert (judged.alive, judged.evidence) == (alive, evidence)
