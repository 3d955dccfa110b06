"""The capture job of a source, kept by its schedule: seen on a running source, with what goes wrong there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdc_database import CdcDatabase, cdc_database, wait_until
from emulator_process import Emulator
from floodmark.core.capture import REPLICATION, PlannedStop, make_heartbeat
from floodmark.core.errors import (
    CaptureStoppedError,
    CdcNotEnabledError,
    SourceAdminError,
    SourceUnavailableError,
    WarehouseUnavailableError,
)
from floodmark.core.schema import TableName
from floodmark.core.upkeep import Action, CaptureSettings, Step
from floodmark.postgres.ledger.ledger import PostgresUpkeepLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc import operations
from floodmark.sources.cdc.operations import SqlServerJobs
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.driver import SourceSession, SqlServerConnection
from floodmark.sync.upkeep import keep_capture
from open_alerts import OpenAlerts

NOW = datetime(2026, 5, 1, 9, tzinfo=UTC)
STOP = PlannedStop(NOW - timedelta(minutes=1), NOW + timedelta(hours=8))


class Keeper:
    """Runs of the schedule on one database."""

    def __init__(self, database: CdcDatabase, at: SqlServerConnection, ledger: PostgresUpkeepLedger) -> None:
        self.database = database
        self.control = SqlServerJobs(at)
        self.ledger = ledger
        self.reported = OpenAlerts()
        self.source = SqlServerSource(at)

    def keep(
        self, stop: PlannedStop | None = None, settings: CaptureSettings | None = None, now: datetime = NOW
    ) -> Step:
        return keep_capture(
            "shop",
            settings or CaptureSettings(),
            stop,
            now,
            control=self.control,
            ledger=self.ledger,
            alerts=self.reported,
        )

    def keep_until(self, action: Action, stop: PlannedStop) -> None:
        """Run after run, as the scheduler does."""
        wait_until(lambda: self.keep(stop).action is action)

    @property
    def running(self) -> bool | None:
        return self.control.read_capture().running

    @property
    def log_reuse_wait(self) -> str | None:
        return self.control.read_capture().log_reuse_wait

    def job(self, name: str) -> int:
        job = self.control.read_capture().job
        assert job is not None
        return job[name]

    def write(self) -> None:
        self.database.run("INSERT dbo.Orders DEFAULT VALUES")

    def captured_rows(self) -> int:
        return len(self.database.change_table("dbo_Orders"))


@pytest.fixture
def keeper(emulator: Emulator, database: WarehouseConnection) -> Iterator[Keeper]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int IDENTITY PRIMARY KEY)",
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'Orders', @role_name = NULL",
        )
        at = SqlServerConnection(
            emulator.host, emulator.port, made.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
        )
        keeper = Keeper(made, at, PostgresUpkeepLedger(database))
        wait_until(lambda: keeper.control.read_capture().scan is not None)
        yield keeper
        made.run("EXEC emulator.reset")


def test_planned_stop_stops_the_job_once_capture_has_caught_up_and_its_end_starts_it(keeper: Keeper) -> None:
    keeper.write()
    # What is written between the last scan and the stop is captured after it; another test is about the waiting.
    wait_until(lambda: keeper.captured_rows() == 1)
    keeper.keep_until(Action.STOP, STOP)
    assert keeper.running is False
    keeper.write()
    assert keeper.keep(STOP).action is Action.NOTHING
    assert keeper.keep().action is Action.START
    assert keeper.running is True
    wait_until(lambda: keeper.captured_rows() == 2)
    assert keeper.keep().action is Action.NOTHING
    assert keeper.reported.open == {}


def test_jobs_of_a_replicated_database_are_left_alone(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper.database.run("EXEC sys.sp_cdc_stop_job")
    wait_until(lambda: keeper.running is False)
    seen = replace(keeper.control.read_capture(), is_replica=True)
    monkeypatch.setattr(keeper.control, "read_capture", lambda: seen)
    with pytest.raises(SourceAdminError, match=r"read-only replica.*sources\.shop\.capture"):
        keeper.keep()
    monkeypatch.undo()
    assert (keeper.running, keeper.reported.open) == (False, {})


def test_job_that_a_user_stopped_is_started_again(keeper: Keeper) -> None:
    keeper.database.run("EXEC sys.sp_cdc_stop_job")
    wait_until(lambda: keeper.running is False)
    assert keeper.keep().action is Action.START
    assert keeper.running is True


def test_start_that_another_user_has_asked_for_meanwhile_is_no_error(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_running, seen = operations._is_running, iter([False, False])
    monkeypatch.setattr(operations, "_is_running", lambda session: next(seen, is_running(session)))
    keeper.control.start_capture()
    assert keeper.running is True


def test_start_that_the_agent_refuses_says_why(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "_REFUSED_LIMIT_SECONDS", 0.5)
    monkeypatch.setattr(operations, "_is_running", lambda _: False)
    with pytest.raises(SourceAdminError, match="refused because the job is already running from a request by"):
        keeper.control.start_capture()


def test_stop_waits_for_capture_that_is_behind_but_not_beyond_its_limit(keeper: Keeper) -> None:
    keeper.database.run("EXEC emulator.delay_capture @seconds = 3600")
    keeper.write()
    wait_until(lambda: keeper.log_reuse_wait == REPLICATION)
    step = keeper.keep(STOP)
    assert (step.action, keeper.running) == (Action.WAIT, True)
    late = keeper.keep(STOP, now=STOP.since + timedelta(seconds=600))
    assert (late.action, keeper.running) == (Action.STOP, False)
    assert "continues after it" in late.reason


def test_full_log_ends_a_stop_alerts_and_the_stop_is_not_begun_again(keeper: Keeper) -> None:
    keeper.keep_until(Action.STOP, STOP)
    keeper.write()
    keeper.database.run("EXEC emulator.fill_log")
    step = keeper.keep(STOP)
    assert (step.action, keeper.running) == (Action.START, True)
    assert "the log is 100 % full (limit 70 %)" in step.guard
    assert keeper.reported.kinds == ["capture_stop_ended"]
    keeper.database.run("EXEC emulator.clear_faults")
    wait_until(lambda: keeper.log_reuse_wait != REPLICATION)
    assert keeper.keep(STOP).action is Action.NOTHING
    assert keeper.running is True
    assert keeper.reported.kinds == ["capture_stop_ended"]
    keeper.keep()
    assert keeper.reported.open == {}


def test_log_that_is_held_too_long_ends_a_stop(keeper: Keeper) -> None:
    keeper.write()
    keeper.keep_until(Action.STOP, STOP)
    keeper.write()
    keeper.database.run("EXEC emulator.advance_clock @seconds = 50000")
    step = keeper.keep(STOP)
    assert (step.action, keeper.running) == (Action.START, True)
    assert "has been held for 500" in step.guard


def test_parameters_are_applied_with_the_restart_that_they_need_and_only_once(keeper: Keeper) -> None:
    settings = CaptureSettings(job={"maxtrans": 1234, "pollinginterval": 2})
    step = keeper.keep(settings=settings)
    assert (step.action, keeper.running) == (Action.RESTART, True)
    assert (keeper.job("maxtrans"), keeper.job("pollinginterval"), keeper.job("maxscans")) == (1234, 2, 10)
    assert keeper.keep(settings=settings).action is Action.NOTHING


@pytest.mark.parametrize("dies_before", ["change_capture", "start_capture"])
def test_run_killed_in_a_restart_is_made_good_by_the_next(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, dies_before: str
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    settings = CaptureSettings(job={"maxscans": 7})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(keeper.control, dies_before, die)
        patch.setattr(keeper.control, "start_capture", die)
        keeper.keep(settings=settings)
    assert keeper.running is False
    keeper.keep(settings=settings)
    assert (keeper.job("maxscans"), keeper.running) == (7, True)


def refuse(*_: object) -> None:
    raise SourceAdminError("shop", "it is refused.")


@pytest.mark.parametrize("runs_before", [True, False])
def test_job_runs_although_its_parameters_cannot_be_changed_however_often(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, runs_before: bool
) -> None:
    if not runs_before:
        keeper.control.stop_capture()
    monkeypatch.setattr(keeper.control, "change_capture", refuse)
    for _ in range(2):
        with pytest.raises(SourceAdminError, match="it is refused"):
            keeper.keep(settings=CaptureSettings(job={"maxscans": 7}))
        assert keeper.running is True
    assert keeper.reported.open == {}


def test_start_that_fails_is_an_alert_also_after_a_restart_and_in_a_stop_that_the_log_ended(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper.control, "start_capture", refuse)
    with pytest.raises(SourceAdminError):
        keeper.keep(settings=CaptureSettings(job={"maxscans": 7}))
    assert keeper.reported.kinds == ["capture_not_running"]
    keeper.reported.open.clear()
    keeper.database.run("EXEC emulator.fill_log")
    with pytest.raises(SourceAdminError):
        keeper.keep(STOP)
    assert keeper.reported.kinds == ["capture_not_running", "capture_stop_ended"]
    assert "the log is 100 % full" in keeper.ledger.read_ended_stop("shop", STOP.since)


def test_job_that_dies_when_it_is_started_is_an_alert_until_it_runs(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.sources.cdc.operations._STATE_LIMIT_SECONDS", 3.0)
    keeper.database.run("EXEC emulator.fail_capture @message = N'disk is gone'")
    wait_until(lambda: keeper.running is False)
    with pytest.raises(SourceUnavailableError, match="did not start"):
        keeper.keep()
    assert keeper.reported.kinds == ["capture_not_running"]
    keeper.database.run("EXEC emulator.clear_faults")
    # The Agent may start it first. Until its first scan has ended, the newest one is that which failed.
    wait_until(lambda: bool(keeper.keep()) and keeper.reported.open == {})
    assert keeper.running is True


def test_database_without_a_capture_job_is_an_alert(keeper: Keeper) -> None:
    keeper.database.run("EXEC sys.sp_cdc_stop_job", "EXEC sys.sp_cdc_drop_job @job_type = N'capture'")
    with pytest.raises(CaptureStoppedError, match="has no capture job"):
        keeper.keep()
    assert keeper.reported.kinds == ["capture_not_running"]


def test_job_that_runs_and_brings_nothing_is_an_alert_that_names_its_evidence(keeper: Keeper) -> None:
    keeper.write()
    wait_until(lambda: keeper.captured_rows() == 1)
    keeper.database.run("EXEC emulator.slow_scan @seconds = 600")
    keeper.write()
    keeper.database.run("EXEC emulator.advance_clock @seconds = 7200")
    assert keeper.keep().action is Action.NOTHING
    assert keeper.reported.kinds == ["capture_not_alive"]
    (alert,) = keeper.reported.open.values()
    assert "evidence: " in alert.what


def test_ledger_that_cannot_be_reached_keeps_no_job_from_being_started(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> str:
        raise WarehouseUnavailableError("warehouse", "it cannot be reached.")

    monkeypatch.setattr(keeper.ledger, "read_ended_stop", unreachable)
    keeper.database.run("EXEC sys.sp_cdc_stop_job", "EXEC emulator.fill_log")
    wait_until(lambda: keeper.running is False)
    assert keeper.keep(STOP).action is Action.START
    assert keeper.running is True


def test_azure_sql_database_is_read_without_msdb_and_left_to_its_own_scheduler(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The emulator is no Azure: its answer to the one question is given here, and msdb is made unreachable."""
    sent, send = [], SourceSession.fetch_sets

    def to_azure(session: SourceSession, text: str, parameters: Sequence[object] = ()) -> list[list[tuple[Any, ...]]]:
        sent.append(text)
        reported = text.replace("SERVERPROPERTY('EngineEdition')", "5").replace("msdb.", "nowhere.")
        return send(session, reported, parameters)

    monkeypatch.setattr(SourceSession, "fetch_sets", to_azure)
    settings = CaptureSettings(job={"maxtrans": 77, "pollinginterval": 2})
    step = keeper.keep(STOP, settings)
    assert (step.action, dict(step.changes)) == (Action.CHANGE, {"maxtrans": 77})
    assert "no Agent" in step.guard
    assert keeper.reported.kinds == ["capture_stop_ended"]
    assert (keeper.job("maxtrans"), keeper.running) == (77, None)
    with caplog.at_level(logging.INFO):
        assert keeper.keep(settings=settings).action is Action.NOTHING
    assert "Capture is alive (evidence: scan sessions)" in caplog.text
    assert keeper.reported.open == {}
    assert not [text for text in sent if "sp_cdc_start_job" in text or "sp_cdc_stop_job" in text]
    snapshot = keeper.source.read_snapshot([TableName("dbo", "Orders")])
    assert (snapshot.has_agent, snapshot.capture_running) == (False, None)


HEARTBEAT = TableName("dbo", "floodmark_heartbeat")


def test_heartbeat_that_arrives_proves_that_capture_works(keeper: Keeper, caplog: pytest.LogCaptureFixture) -> None:
    keeper.database.run(*make_heartbeat(HEARTBEAT).replace("; ", ";\n").splitlines())
    settings = CaptureSettings(heartbeat=HEARTBEAT)
    keeper.keep(settings=settings)
    wait_until(lambda: keeper.control.read_heartbeat(HEARTBEAT).has_arrived)
    with caplog.at_level(logging.INFO):
        keeper.keep(settings=settings)
    assert "Capture is alive (evidence: heartbeat): the beat written" in caplog.text
    assert keeper.control.read_heartbeat(HEARTBEAT).beat == 2


def test_heartbeat_that_does_not_arrive_is_an_alert_until_it_does(keeper: Keeper) -> None:
    keeper.database.run(*make_heartbeat(HEARTBEAT).replace("; ", ";\n").splitlines())
    settings = CaptureSettings(heartbeat=HEARTBEAT, lag_limit_seconds=900)
    keeper.keep(settings=settings)
    wait_until(lambda: keeper.control.read_heartbeat(HEARTBEAT).has_arrived)
    keeper.database.run("EXEC emulator.delay_capture @seconds = 36000")
    keeper.keep(settings=settings)
    keeper.database.run("EXEC emulator.advance_clock @seconds = 1000")
    keeper.keep(settings=settings)
    (alert,) = keeper.reported.open.values()
    assert (alert.kind, "evidence: heartbeat" in alert.what) == ("capture_not_alive", True)
    keeper.database.run("EXEC emulator.clear_faults")
    wait_until(lambda: keeper.control.read_heartbeat(HEARTBEAT).has_arrived)
    keeper.keep(settings=settings)
    assert keeper.reported.open == {}


def test_heartbeat_that_is_not_there_is_said_with_its_making_and_other_evidence_is_used(
    keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        keeper.keep(settings=CaptureSettings(heartbeat=HEARTBEAT))
    assert "has no heartbeat: dbo.floodmark_heartbeat: the table does not exist. CREATE TABLE" in caplog.text
    assert "evidence: scan sessions" in caplog.text
    keeper.database.run(make_heartbeat(HEARTBEAT).partition(" INSERT")[0])
    with pytest.raises(CdcNotEnabledError, match="its changes are not captured"):
        keeper.control.read_heartbeat(HEARTBEAT)
