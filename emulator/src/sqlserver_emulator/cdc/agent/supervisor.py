"""The agent: runs the capture job of every database that has one, as a process, and the cleanup jobs, in a thread.

Owns the processes and what ``sysjobactivity`` says of them, and the upkeep of replication slots. Requests to it are in
``emulator.cdc_job_activity``; ``jobs`` writes them and notifies.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

import psycopg

from sqlserver_emulator.cdc.agent.cleanup import clean_database
from sqlserver_emulator.cdc.agent.history import (
    RunStatus,
    StepEnd,
    begin_run,
    cleaned,
    end_all_runs,
    end_run,
    failed_step,
    note_failure,
    run_goes_on,
)
from sqlserver_emulator.cdc.agent.job_process import GIVEN_UP, JobProcess
from sqlserver_emulator.cdc.enabling.guard import GUARD
from sqlserver_emulator.cdc.instances import read_database
from sqlserver_emulator.cdc.jobs import AGENT_LOCK, CAPTURE, CHANNEL, CLEANUP, Job, find_job, list_jobs
from sqlserver_emulator.cdc.log.slots import drop_abandoned, keep_spare
from sqlserver_emulator.cdc.messages import cdc_error
from sqlserver_emulator.cdc.postgres import SqlConnection, connect, runner
from sqlserver_emulator.cdc.scan.scan_errors import LOG_SCAN_FAILED
from sqlserver_emulator.cdc.scan.scan_sessions import forget_sessions, record_errors
from sqlserver_emulator.clock import EngineClock
from sqlserver_emulator.engine.connection.notifications import Notifications
from sqlserver_emulator.engine.ddl import hooks
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.faults import CaptureFaults, FaultBoard

_RESTART_SECONDS = 1.0
_UPKEEP_SECONDS = 10.0
_STOP_SECONDS = 10.0
_STATEMENT_SECONDS = 1.0
"""The time that a statement of the agent has to end when the agent stops."""
_ANSWER_SECONDS = 600.0
_PAUSE_SECONDS = 0.02
# docs/reference/sqlserver_cdc.md, "Capture and cleanup jobs".
_CLEANUP_HOUR = 2


class EngineAddress(Protocol):
    """The part of the engine that is used."""

    conninfo: str
    capture_interval_seconds: float | None
    clock: EngineClock
    faults: FaultBoard


class CaptureSupervisor:
    """The agent. ``start`` returns when it runs, ``stop`` when its processes have ended; it may be started again."""

    def __init__(self, engine: EngineAddress) -> None:
        self._conninfo = engine.conninfo
        self._interval_seconds = engine.capture_interval_seconds
        self._clock = engine.clock
        self._faults = engine.faults
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._running: dict[str, JobProcess] = {}
        self._restart_at: dict[str, float] = {}
        self._retrying: dict[str, Job] = {}
        self._starting = threading.Lock()
        self._failed: dict[str, int] = {}
        self._notifications: Notifications | None = None
        self._cleanups: dict[str, threading.Thread] = {}
        self._next_cleanup = next_cleanup_after(self._clock.now())
        self._next_upkeep = 0.0
        self._clock.call_when_moved(self._wake)
        # Here and not in `start`: tracked tables are guarded while the Agent is stopped too.
        hooks.register(GUARD)
        with connect(self._conninfo) as connection:
            forget_sessions(runner(connection))

    def start(self) -> None:
        """Start the agent; the capture jobs are requested, as at a start of the real Agent."""
        self._ended.clear()
        self._connection = connect(self._conninfo, application="sqlserver_emulator agent")
        self._run = runner(self._connection)
        # Shows every session that the Agent runs (`jobs.is_agent_running`); it ends with this connection, after a crash
        # too.
        self._run("SELECT pg_advisory_lock($1::bigint)", (AGENT_LOCK,))
        self._run(f"LISTEN {CHANNEL}", ())
        keep_spare(self._run)
        self._run("DELETE FROM emulator.job_runs", ())  # a crash left them
        self._run("INSERT INTO emulator.agent_sessions (agent_start_date) VALUES (emulator_cdc.now())", ())
        self._run(_AGENT_STARTS, (CAPTURE,))
        self._notifications = Notifications(self._connection)
        self._thread = threading.Thread(
            target=self._supervise, args=(self._notifications,), name="cdc-agent", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ask the jobs to end; what they had not stored is captured after the next start. May be repeated."""
        self._ended.set()
        self._wake()
        thread, self._thread = self._thread, None
        if thread is not None:
            self._join(thread)
            notifications, self._notifications = self._notifications, None
            if notifications is not None:
                notifications.close()
            self._running.clear()
            self._retrying.clear()
            with contextlib.suppress(psycopg.OperationalError):
                self._run(f"SET lock_timeout = '{_STATEMENT_SECONDS}s'", ())
                end_all_runs(self._run)
                self._run(_AGENT_ENDS, ())
                # PostgreSQL would let go of it some moments after the connection is closed.
                self._run("SELECT pg_advisory_unlock($1::bigint)", (AGENT_LOCK,))
            self._connection.close()

    def _join(self, thread: threading.Thread) -> None:
        """Wait for the loop. Its statement may wait for a client's lock, or read much of the log: it is cancelled."""
        thread.join(_STATEMENT_SECONDS)
        while thread.is_alive():
            with contextlib.suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=_STATEMENT_SECONDS)
            thread.join(_STATEMENT_SECONDS)

    def apply_faults(self, database_id: int) -> None:
        """Apply changed faults of the database's capture; return when its job does as they say."""
        self._wake()
        faults = self._faults.of_capture(database_id)
        if faults.failure is None:
            self.send_settings(database_id, capture_settings(faults))
            return
        job_id = self._capture_job_id(database_id)
        deadline = time.monotonic() + _STOP_SECONDS
        while self._find(job_id) is not None and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)

    def send_settings(self, database_id: int, settings: Mapping[str, object]) -> bool:
        """Notify the database's capture job and wait until it has done so; False when it does not run."""
        running = self._find(self._capture_job_id(database_id))
        return running is not None and running.send_settings(settings, _ANSWER_SECONDS)

    def _capture_job_id(self, database_id: int) -> str | None:
        """Return the job that the database has: the process of one that was dropped may take a while to end, and its
        database's number may be another's meanwhile.
        """
        with connect(self._conninfo) as connection:
            job = find_job(runner(connection), database_id, CAPTURE)
        return job.job_id if job else None

    def _find(self, job_id: str | None) -> JobProcess | None:
        with self._starting:  # a job that is just starting may not know yet what there is to know
            return self._running.get(job_id) if job_id else None

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _supervise(self, notifications: Notifications) -> None:
        try:
            while not self._ended.is_set():
                self._try_to_check()
                notifications.wait(self._seconds_to_next())
        except psycopg.OperationalError as error:
            if not self._ended.is_set():
                print(f"the agent lost its PostgreSQL: {error}", file=sys.stderr, flush=True)
        finally:
            self._end_all()

    def _wake(self) -> None:
        """Let the loop check at once. For all that sends no notification: ended processes, faults, a moved clock."""
        notifications = self._notifications
        if notifications is not None:
            notifications.wake()

    def _seconds_to_next(self) -> float:
        """Return when there is something to do that nothing wakes the loop for."""
        restarts = (self._restart_at[job_id] for job_id in self._retrying)
        next_at = min((self._next_upkeep, *restarts)) - time.monotonic()
        return min(next_at, (self._next_cleanup - self._clock.now()).total_seconds())

    def _try_to_check(self) -> None:
        """Run one round. A failure that may pass must not end the agent: all jobs would stop without a sign."""
        try:
            self._check()
        except (psycopg.Error, OSError) as error:
            if self._connection.closed:
                raise
            if self._ended.is_set():
                return
            print(f"the agent will try again: {error}", file=sys.stderr, flush=True)
            self._ended.wait(_RESTART_SECONDS)
            self._wake()

    def _check(self) -> None:
        """Start and end processes until they are the requested ones."""
        # First: it requests jobs, and no notification says so.
        self._restart_failed()
        wanted = {job.job_id: job for job in self._requested(CAPTURE)}
        for job in list(wanted.values()):
            failure = self._faults.of_capture(job.database_id).failure
            if failure is not None:
                self._fail(wanted.pop(job.job_id), failure)
        # Before the starts: a job that was stopped and requested again gets its new process in the same round.
        for job_id in list(self._running):
            self._check_running(job_id, wanted)
        self._end_stopped_retries(wanted)
        for job_id, job in wanted.items():
            if job_id not in self._running and time.monotonic() >= self._restart_at.get(job_id, 0.0):
                self._start_capture(job)
        for job in self._requested(CLEANUP):
            self._start_cleanup(job)
        self._start_daily_cleanup()
        self._keep_slots()

    def _requested(self, job_type: str) -> list[Job]:
        asked = {str(i) for (i,) in self._run("SELECT job_id FROM emulator.cdc_job_activity WHERE is_requested", ())}
        return [job for job in list_jobs(self._run) if job.job_type == job_type and job.job_id in asked]

    # -- capture ----------------------------------------------------------------------------------------------------

    def _start_capture(self, job: Job) -> None:
        with self._starting:
            # Read under the lock that `_find` takes: a change of the faults is either in these arguments or finds the
            # process.
            settings = capture_settings(self._faults.of_capture(job.database_id))
            self._running[job.job_id] = JobProcess(
                job, self._conninfo, self._interval_seconds, settings, on_end=self._wake
            )
        self._retrying.pop(job.job_id, None)
        self._run(_CAPTURE_STARTS, (job.job_id,))
        begin_run(self._run, job)

    def _check_running(self, job_id: str, wanted: dict[str, Job]) -> None:
        running = self._running[job_id]
        if job_id not in wanted and not running.stopping:
            running.ask_to_end()
        code = running.process.poll()
        if code is None:
            return
        self._running.pop(job_id).forget()
        is_crash = code not in (0, GIVEN_UP) and not running.stopping
        if is_crash and note_failure(self._run, running.job, [_PROCESS_ENDED]):
            self._restart_at[job_id] = time.monotonic() + _RESTART_SECONDS
            self._retrying[job_id] = running.job
            return
        # Ended by itself: a job that is not continuous has done its work; one that failed too often stays down.
        is_done = not running.stopping and wanted.pop(job_id, None) is not None
        self._end_capture(
            running.job, RunStatus.CANCELLED if running.stopping else RunStatus.SUCCEEDED, is_done=is_done
        )

    def _end_stopped_retries(self, wanted: Mapping[str, Job]) -> None:
        """End the runs that were stopped while they waited for their next attempt: no process of theirs ends."""
        for job_id, job in list(self._retrying.items()):
            if job_id not in wanted:
                del self._retrying[job_id]
                self._end_capture(job, RunStatus.CANCELLED, is_done=False)

    def _end_capture(self, job: Job, status: RunStatus, *, is_done: bool) -> None:
        self._run(
            "UPDATE emulator.cdc_job_activity SET stop_execution_date = emulator_cdc.now(),"
            " is_requested = is_requested AND NOT $2::boolean WHERE job_id = $1::uuid",
            (job.job_id, is_done),
        )
        # Last: a reader who sees the row may start the job again.
        end_run(self._run, job, StepEnd(status))

    def _fail(self, job: Job, message: str) -> None:
        """Kill the job for a fault, as if the log could not be read; it waits until the fault is cleared."""
        self._retrying.pop(job.job_id, None)
        running = self._running.pop(job.job_id, None)
        if running is not None:
            running.process.kill()
            running.process.wait()
            running.forget()
        errors = [SqlServerError(LOG_SCAN_FAILED, message)]
        begin_run(self._run, job)
        self._run(_JOB_FAILED, (job.job_id,))
        record_errors(self._run, job.database_id, errors)
        end_run(self._run, job, failed_step(RunStatus.FAILED, errors))
        self._failed[job.job_id] = job.database_id

    def _restart_failed(self) -> None:
        for job_id, database_id in list(self._failed.items()):
            if self._faults.of_capture(database_id).failure is None:
                del self._failed[job_id]
                self._run("UPDATE emulator.cdc_job_activity SET is_requested = true WHERE job_id = $1::uuid", (job_id,))

    def _end_all(self) -> None:
        for running in self._running.values():
            running.ask_to_end()
        deadline = time.monotonic() + _STOP_SECONDS
        for running in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(max(0.0, deadline - time.monotonic()))
            running.process.kill()
            running.process.wait()
            running.forget()
        for thread in list(self._cleanups.values()):
            thread.join(_STOP_SECONDS)

    # -- cleanup and upkeep -----------------------------------------------------------------------------------------

    def _start_daily_cleanup(self) -> None:
        now, due = self._clock.now(), self._next_cleanup
        # The next one is never a day away: the clock may have been set back.
        self._next_cleanup = next_cleanup_after(now)
        if now < due:
            return
        for job in list_jobs(self._run):
            if job.job_type == CLEANUP:
                self._run(_CLEANUP_IS_DUE, (job.job_id,))
                self._start_cleanup(job)

    def _start_cleanup(self, job: Job) -> None:
        earlier = self._cleanups.get(job.job_id)
        if earlier is not None:
            if run_goes_on(self._run, job):
                return
            # Its outcome is there for all to see, so that a run that is due now may not be left out.
            earlier.join()
        self._run(_CLEANUP_STARTS, (job.job_id,))
        begin_run(self._run, job)
        thread = threading.Thread(target=self._clean, args=(job,), name=f"cdc-cleanup-{job.database_id}", daemon=True)
        self._cleanups[job.job_id] = thread
        thread.start()

    def _clean(self, job: Job) -> None:
        try:
            with connect(self._conninfo) as connection:
                while not run_cleanup_job(connection, job) and not self._ended.wait(_RESTART_SECONDS):
                    continue
        except psycopg.Error as error:
            print(f"cleanup job {job.name}: {error}", file=sys.stderr, flush=True)
        finally:
            # It may have been requested again meanwhile.
            self._cleanups.pop(job.job_id, None)
            self._wake()

    def _keep_slots(self) -> None:
        if time.monotonic() >= self._next_upkeep:
            self._next_upkeep = time.monotonic() + _UPKEEP_SECONDS
            drop_abandoned(self._run)
            keep_spare(self._run)


def run_cleanup_job(connection: SqlConnection, job: Job) -> bool:
    """Run a cleanup job once; ``connection`` is in autocommit, so each batch of deletes commits.

    Returns whether it has ended: False after a failure that leaves it attempts.
    """
    run = runner(connection)
    database, settings = read_database(run, job.database_id), job.settings
    mark = b""
    try:
        if database is not None:
            mark = clean_database(
                run, database, settings.retention, threshold=settings.threshold, atomic=connection.transaction
            )
    except psycopg.Error as error:
        print(f"cleanup job {job.name}: {error}", file=sys.stderr, flush=True)
        if note_failure(run, job, [cdc_error(22924, database.name if database else "")]):
            return False
    run(
        "UPDATE emulator.cdc_job_activity SET stop_execution_date = emulator_cdc.now() WHERE job_id = $1::uuid",
        (job.job_id,),
    )
    end_run(run, job, cleaned(mark))
    return True


def capture_settings(faults: CaptureFaults) -> dict[str, object]:
    """Return the notification of its faults that a capture job gets (see ``process``)."""
    return {"delay_seconds": faults.delay_seconds, "scan_seconds": faults.scan_seconds}


def next_cleanup_after(now: datetime) -> datetime:
    """Return the next two in the morning, when cleanup jobs run daily."""
    # docs/reference/sqlserver_cdc.md, "Capture and cleanup jobs".
    today = now.replace(hour=_CLEANUP_HOUR, minute=0, second=0, microsecond=0)
    return today if now < today else today + timedelta(days=1)


_PROCESS_ENDED = SqlServerError(LOG_SCAN_FAILED, "The process of the capture job ended.")
# A run whose process is started again goes on since its start.
_CAPTURE_STARTS = """
UPDATE emulator.cdc_job_activity a SET start_execution_date = emulator_cdc.now(), stop_execution_date = NULL
WHERE job_id = $1::uuid AND NOT EXISTS (
    SELECT FROM emulator.job_runs r WHERE r.job_id = a.job_id AND a.start_execution_date IS NOT NULL)
"""
_AGENT_STARTS = """
INSERT INTO emulator.cdc_job_activity (job_id, session_id, is_requested, requested_by, requested_source,
    run_requested_date)
SELECT j.job_id, s.session_id, j.job_type = $1::varchar, 'sa', 3,
    CASE WHEN j.job_type = $1::varchar THEN emulator_cdc.now() END
FROM emulator.cdc_jobs j, (SELECT max(session_id) AS session_id FROM emulator.agent_sessions) AS s
ON CONFLICT (job_id) DO UPDATE SET session_id = excluded.session_id, is_requested = excluded.is_requested,
    requested_by = excluded.requested_by, requested_source = excluded.requested_source,
    run_requested_date = excluded.run_requested_date, start_execution_date = NULL, stop_execution_date = NULL
"""
_AGENT_ENDS = """
UPDATE emulator.cdc_job_activity SET is_requested = false, stop_execution_date = emulator_cdc.now()
WHERE start_execution_date IS NOT NULL AND stop_execution_date IS NULL
"""
_CLEANUP_IS_DUE = """
INSERT INTO emulator.cdc_job_activity AS a (job_id, session_id, is_requested, requested_by, requested_source,
    run_requested_date)
SELECT $1::uuid, max(session_id), false, 'sa', 1, emulator_cdc.now() FROM emulator.agent_sessions
ON CONFLICT (job_id) DO UPDATE SET requested_by = excluded.requested_by, requested_source = excluded.requested_source,
    run_requested_date = excluded.run_requested_date
WHERE NOT EXISTS (SELECT FROM emulator.job_runs r WHERE r.job_id = a.job_id)
"""
_CLEANUP_STARTS = """
UPDATE emulator.cdc_job_activity SET is_requested = false, start_execution_date = emulator_cdc.now(),
    stop_execution_date = NULL WHERE job_id = $1::uuid
"""
_JOB_FAILED = """
UPDATE emulator.cdc_job_activity SET is_requested = false, stop_execution_date = emulator_cdc.now(),
    start_execution_date = coalesce(start_execution_date, emulator_cdc.now()) WHERE job_id = $1::uuid
"""
