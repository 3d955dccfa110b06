"""Capture and cleanup jobs: their settings (``msdb.dbo.cdc_jobs``) and what the agent was asked to do with them.

The agent is ``supervisor``, in the server's process; it learns of a request by notification. Owns the tables
``emulator.cdc_jobs`` and ``cdc_job_activity`` and the rules of who may be started and stopped when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlserver_emulator.cdc.messages import AgentError, cdc_error
from sqlserver_emulator.cdc.metadata import Run

CHANNEL = "emulator_cdc_jobs"
AGENT_LOCK = 0x43444341
"""Key of the session-level advisory lock that the running agent holds."""

CAPTURE, CLEANUP = "capture", "cleanup"
AGENT_STOPPED = "SQLServerAgent is not currently running so it cannot be notified of this action."

# docs/reference/sqlserver_cdc.md, "Job procedures": the defaults of SQL Server 2022.
DEFAULT_MAXTRANS = 500
DEFAULT_MAXSCANS = 10
DEFAULT_POLLING_INTERVAL = 5
DEFAULT_RETENTION = 4320
DEFAULT_THRESHOLD = 5000
MAX_POLLING_INTERVAL = 86_399
# As error 22994 says; one page differs (emulator/docs/emulator.md, "Where sources disagree").
MAX_RETENTION = 52_594_800


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The columns of cdc_jobs after job_id; those that do not belong to the job's type are 0."""

    maxtrans: int = 0
    maxscans: int = 0
    continuous: bool = False
    pollinginterval: int = 0
    retention: int = 0
    threshold: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a database. ``job_type``: capture or cleanup."""

    job_id: str
    database_id: int
    job_type: str
    name: str
    settings: JobSettings


DEFAULTS = {
    CAPTURE: JobSettings(DEFAULT_MAXTRANS, DEFAULT_MAXSCANS, True, DEFAULT_POLLING_INTERVAL),
    CLEANUP: JobSettings(retention=DEFAULT_RETENTION, threshold=DEFAULT_THRESHOLD),
}


def check_settings(job_type: str, settings: JobSettings) -> None:
    """Check the settings of a job. Raises 22970, 22990, 22991, 22994, 22850, 22999."""
    if job_type == CAPTURE:
        check_scan_settings(settings)
        return
    if not 0 < settings.retention <= MAX_RETENTION:
        raise cdc_error(22994)
    if settings.threshold <= 0:
        raise cdc_error(22850)


def check_scan_settings(settings: JobSettings) -> None:
    """Check the settings of a capture job, or the arguments of sp_cdc_scan. Raises 22970, 22990, 22991, 22999."""
    if not 0 <= settings.pollinginterval <= MAX_POLLING_INTERVAL:
        raise cdc_error(22990)
    if not settings.continuous and settings.pollinginterval:
        raise cdc_error(22999)
    if settings.maxtrans <= 0:
        raise cdc_error(22991)
    if settings.maxscans <= 0:
        raise cdc_error(22970)


def add_job(run: Run, database_id: int, database: str, job_type: str, settings: JobSettings) -> Job:
    """Add the job of a database. Its name gets a unique end where it is taken."""
    name = f"cdc.{database}_{job_type}"
    ((job_id, name),) = run(
        _ADD,
        (
            database_id,
            job_type,
            name,
            settings.maxtrans,
            settings.maxscans,
            int(settings.continuous),
            settings.pollinginterval,
            settings.retention,
            settings.threshold,
        ),
    )
    return Job(str(job_id), database_id, job_type, str(name), settings)


def change_job(run: Run, job: Job, settings: JobSettings) -> None:
    """Store new settings of a job, which take effect when it starts the next time."""
    run(
        "UPDATE emulator.cdc_jobs SET maxtrans = $2::int, maxscans = $3::int, continuous = $4::smallint,"
        " pollinginterval = $5::bigint, retention = $6::bigint, threshold = $7::bigint WHERE job_id = $1::uuid",
        (
            job.job_id,
            settings.maxtrans,
            settings.maxscans,
            int(settings.continuous),
            settings.pollinginterval,
            settings.retention,
            settings.threshold,
        ),
    )


def drop_job(run: Run, job: Job) -> None:
    """Remove the job; the agent ends it if it runs."""
    run("DELETE FROM emulator.cdc_jobs WHERE job_id = $1::uuid", (job.job_id,))
    run("DELETE FROM emulator.cdc_job_activity WHERE job_id = $1::uuid", (job.job_id,))
    notify_agent(run)


def find_job(run: Run, database_id: int, job_type: str) -> Job | None:
    """Return the database's job of that type, None when it has none."""
    rows = run(f"{_JOBS} WHERE database_id = $1::int AND job_type = $2::varchar", (database_id, job_type))
    return _job(rows[0]) if rows else None


def list_jobs(run: Run, database_id: int | None = None) -> list[Job]:
    """Return the jobs of a database, or all."""
    sql = f"{_JOBS} WHERE $1::int IS NULL OR database_id = $1::int ORDER BY database_id, job_type"
    return [_job(row) for row in run(sql, (database_id,))]


def is_agent_running(run: Run) -> bool:
    """Return whether the agent holds its lock."""
    # How pg_locks shows an advisory lock with one key of 64 bits: classid is its upper half, which is 0 here.
    return bool(
        run(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND classid = 0"
            " AND objid = $1::bigint::oid AND granted",
            (AGENT_LOCK,),
        )
    )


def is_requested(run: Run, database_id: int) -> bool:
    """Return whether the database's capture job is asked to run."""
    return bool(
        run(
            "SELECT 1 FROM emulator.cdc_job_activity a JOIN emulator.cdc_jobs j USING (job_id)"
            " WHERE j.database_id = $1::int AND j.job_type = $2::varchar AND a.is_requested",
            (database_id, CAPTURE),
        )
    )


def request_start(run: Run, job: Job, login: str) -> str:
    """Ask the agent to run the job; return its answer. Raises 22022 when it refuses or is not there."""
    if not is_agent_running(run):
        raise AgentError(AGENT_STOPPED)
    rows = run(_REQUEST_START, (job.job_id, login))
    if not rows:
        ((by, is_running),) = run(_RUNNING, (job.job_id,))
        cause = (
            f"is already running from a request by User {by}"
            if is_running
            else (f"already has a pending request from User {by}")
        )
        raise AgentError(f"Request to run job {job.name} (from User {login}) refused because the job {cause}.")
    notify_agent(run)
    return f"Job '{job.name}' started successfully."


def request_stop(run: Run, job: Job, login: str) -> str:
    """Ask the agent to end the job, which it does a moment later. Raises 22022."""
    if not is_agent_running(run):
        raise AgentError(AGENT_STOPPED)
    rows = run(_REQUEST_STOP, (job.job_id,))
    if not rows:
        raise AgentError(
            f"Request to stop job {job.name} (from User {login}) refused because the job is not currently running."
        )
    run("UPDATE emulator.job_runs SET stopped_by = 'User ' || $2::varchar WHERE job_id = $1::uuid", (job.job_id, login))
    notify_agent(run)
    return f"Job '{job.name}' stopped successfully."


def notify_agent(run: Run) -> None:
    """Wake the agent, when the caller's transaction commits."""
    run("SELECT pg_notify($1::text, '')", (CHANNEL,))


def _job(row: tuple[Any, ...]) -> Job:
    job_id, database_id, job_type, name, maxtrans, maxscans, continuous, polling, retention, threshold = row
    settings = JobSettings(maxtrans, maxscans, bool(continuous), polling, retention, threshold)
    return Job(str(job_id), database_id, job_type, name, settings)


_JOBS = (
    "SELECT job_id, database_id, job_type::text, job_name::text, maxtrans, maxscans, continuous, pollinginterval,"
    " retention, threshold FROM emulator.cdc_jobs"
)
_ADD = """
INSERT INTO emulator.cdc_jobs (database_id, job_type, job_name, maxtrans, maxscans, continuous, pollinginterval,
    retention, threshold)
SELECT $1::int, $2::varchar,
       $3::varchar || CASE WHEN EXISTS (SELECT 1 FROM emulator.cdc_jobs WHERE job_name = $3::varchar)
                           THEN '.{' || upper(gen_random_uuid()::text) || '}' ELSE '' END,
       $4::int, $5::int, $6::smallint, $7::bigint, $8::bigint, $9::bigint
RETURNING job_id, job_name::text
"""
_RUNNING = """
SELECT requested_by, start_execution_date IS NOT NULL AND stop_execution_date IS NULL
FROM emulator.cdc_job_activity WHERE job_id = $1::uuid
"""
# The condition on the conflicting row makes one of two requests at the same time fail, as it returns no row.
_REQUEST_START = """
INSERT INTO emulator.cdc_job_activity AS a (job_id, session_id, is_requested, requested_by, run_requested_date)
SELECT $1::uuid, max(session_id), true, $2::varchar, emulator_cdc.now() FROM emulator.agent_sessions
ON CONFLICT (job_id) DO UPDATE SET is_requested = true, requested_by = excluded.requested_by, requested_source = 4,
    run_requested_date = excluded.run_requested_date, start_execution_date = NULL, stop_execution_date = NULL
WHERE NOT a.is_requested
RETURNING 1
"""
# A request that the agent has not come to yet begins and ends at once: who waits for the end of the run sees it.
_REQUEST_STOP = """
UPDATE emulator.cdc_job_activity SET is_requested = false,
    start_execution_date = coalesce(start_execution_date, emulator_cdc.now()),
    stop_execution_date = CASE WHEN start_execution_date IS NULL THEN emulator_cdc.now() ELSE stop_execution_date END
WHERE job_id = $1::uuid AND is_requested RETURNING 1
"""
