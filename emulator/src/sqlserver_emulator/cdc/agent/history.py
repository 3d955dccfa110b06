"""The history of the agent's jobs (docs/reference/sqlserver_cdc.md, "Job history"): how each run and its steps ended.

Owns the tables ``emulator.job_runs``, the runs that go on, and ``emulator.job_history``. ``supervisor`` and the capture
job's process report to it; ``sql/msdb.sql`` shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from sqlserver_emulator.cdc.jobs import CAPTURE, Job
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.errors import SqlServerError

_RETRY_ATTEMPTS: Final = 10
_RETRY_MINUTES: Final = 1
_KEPT_ROWS_OF_A_JOB: Final = 100
_KEPT_ROWS: Final = 1000
_JOB_OUTCOME: Final = 0
_ACCOUNT: Final = "sqlserver_emulator"


class RunStatus(IntEnum):
    """``run_status`` of sysjobhistory, in the words of the messages."""

    FAILED = 0
    SUCCEEDED = 1
    RETRY = 2
    CANCELLED = 3


_STEP_ENDS: Final = {
    RunStatus.FAILED: "The step failed.",
    RunStatus.SUCCEEDED: "The step succeeded.",
    RunStatus.RETRY: "The step failed.",
    RunStatus.CANCELLED: "The step was cancelled (stopped) as the result of a stop job request.",
}


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The end of a step, as its row says it."""

    status: RunStatus
    text: str = ""
    """What the step said, with two blanks behind each sentence of it."""
    number: int = 0
    severity: int = 0
    retries: int = 0

    @property
    def message(self) -> str:
        return f"Executed as user: {_ACCOUNT}. {self.text}{_STEP_ENDS[self.status]}"


_CAPTURE_STARTED: Final = StepEnd(
    RunStatus.SUCCEEDED,
    "Starting the Change Data Capture Collection Agent job. To report on the progress of the operation, query the"
    " sys.dm_cdc_log_scan_sessions dynamic management view. [SQLSTATE 01000] (Message 22801).  ",
    22801,
    10,
)


def failed_step(status: RunStatus, errors: Sequence[SqlServerError], retries: int = 0) -> StepEnd:
    """Return the end of a step that failed with errors, the cause first."""
    text = "".join(f"{error.message} [SQLSTATE 42000] (Error {error.number}).  " for error in errors)
    if status is RunStatus.FAILED and retries:
        text += f"NOTE: The step was retried the requested number of times ({retries}) without succeeding.  "
    return StepEnd(status, text, errors[-1].number, max(error.severity for error in errors), retries)


def cleaned(mark: bytes) -> StepEnd:
    """Return the end of a cleanup that removed what is below ``mark``; empty: there was nothing."""
    if not mark:
        return StepEnd(RunStatus.SUCCEEDED)
    text = f"Starting the Change Data Capture Cleanup Agent job using low watermark 0x{mark.hex().upper()}."
    return StepEnd(RunStatus.SUCCEEDED, f"{text} [SQLSTATE 01000] (Message 22802).  ", 22802, 10)


def begin_run(run: Run, job: Job) -> None:
    """Record that a job was started, as ``cdc_job_activity`` says by whom; nothing where its run goes on."""
    if run(_BEGIN, (job.job_id,)) and job.job_type == CAPTURE:
        _record_step(run, job.job_id, _CAPTURE_STARTED, step=1)


def end_run(run: Run, job: Job, end: StepEnd) -> None:
    """Record how the run of a job ended, if one goes on."""
    if run_goes_on(run, job):
        _record_step(run, job.job_id, end)
        _record_outcome(run, job.job_id, end.status)


def note_failure(run: Run, job: Job, errors: Sequence[SqlServerError]) -> bool:
    """Record that the running step failed. Return whether it may be tried again; if not, the job has failed.

    A real agent waits for a minute between two attempts. Failures within that minute are one attempt.
    """
    attempts = run(_NOTE_FAILURE, (job.job_id, _RETRY_MINUTES))
    if not attempts:
        return run_goes_on(run, job)
    ((retries,),) = attempts
    if retries >= _RETRY_ATTEMPTS:
        end_run(run, job, failed_step(RunStatus.FAILED, errors, retries))
        return False
    _record_step(run, job.job_id, failed_step(RunStatus.RETRY, errors, retries))
    run("UPDATE emulator.job_runs SET attempt_at = emulator_cdc.now() WHERE job_id = $1::uuid", (job.job_id,))
    return True


def end_all_runs(run: Run) -> None:
    """Record the runs that end because the agent does."""
    stopped = "UPDATE emulator.job_runs SET stopped_by = 'Shutdown Sequence 0' RETURNING job_id"
    for (job_id,) in run(stopped, ()):
        _record_step(run, str(job_id), StepEnd(RunStatus.CANCELLED))
        _record_outcome(run, str(job_id), RunStatus.CANCELLED)


def run_goes_on(run: Run, job: Job) -> bool:
    """Return whether a run of a job has begun and has no outcome yet."""
    return bool(run("SELECT 1 FROM emulator.job_runs WHERE job_id = $1::uuid", (job.job_id,)))


def _record_step(run: Run, job_id: str, end: StepEnd, step: int | None = None) -> None:
    """``step`` None: the last one, which does the work."""
    run(_STEP_ROW, (job_id, step, end.number, end.severity, end.message, int(end.status), end.retries))
    _forget_old(run, job_id)


def _record_outcome(run: Run, job_id: str, status: RunStatus) -> None:
    run(_OUTCOME_ROW, (job_id, int(status), _JOB_OUTCOME))
    _forget_old(run, job_id)


def _forget_old(run: Run, job_id: str) -> None:
    run(_FORGET_OF_JOB, (job_id, _KEPT_ROWS_OF_A_JOB))
    run(_FORGET, (_KEPT_ROWS,))


# A run that goes on is kept: its process was started again. A run begins at the moment that sysjobactivity shows.
_BEGIN = """
INSERT INTO emulator.job_runs (job_id, invoked_by, started_at, attempt_at)
SELECT j.job_id,
       CASE a.requested_source WHEN 1 THEN format('Schedule %s (CDC %s agent schedule.)', j.schedule_id, j.job_type)
            WHEN 3 THEN 'Start Sequence 0' ELSE 'User ' || a.requested_by END,
       start.at, start.at
FROM emulator.cdc_jobs j JOIN emulator.cdc_job_activity a USING (job_id), LATERAL (
    SELECT coalesce(CASE WHEN a.stop_execution_date IS NULL THEN a.start_execution_date END, emulator_cdc.now())
) AS start (at)
WHERE j.job_id = $1::uuid
ON CONFLICT (job_id) DO NOTHING RETURNING 1
"""
_NOTE_FAILURE = """
UPDATE emulator.job_runs SET retries = retries + 1, retry_at = emulator_cdc.now() + make_interval(mins => $2::int)
WHERE job_id = $1::uuid AND (retry_at IS NULL OR retry_at <= emulator_cdc.now()) RETURNING retries - 1
"""
_STEP_ROW = """
INSERT INTO emulator.job_history (job_id, step_id, step_name, sql_message_id, sql_severity, message, run_status,
    run_date, run_time, run_duration, retries_attempted)
SELECT r.job_id, s.step_id, s.step_name, $3::int, $4::int, left($5::text, 4000), $6::int,
       emulator.agent_date(r.attempt_at), emulator.agent_time(r.attempt_at),
       emulator.agent_duration(emulator_cdc.now() - r.attempt_at), $7::int
FROM emulator.job_runs r JOIN emulator.job_steps s USING (job_id)
WHERE r.job_id = $1::uuid AND CASE WHEN $2::int IS NULL THEN s.is_last ELSE s.step_id = $2::int END
"""
# One statement: a reader of the outcome may start the job again.
_OUTCOME_ROW = """
WITH ended AS (DELETE FROM emulator.job_runs WHERE job_id = $1::uuid RETURNING *)
INSERT INTO emulator.job_history (job_id, step_id, step_name, sql_message_id, sql_severity, message, run_status,
    run_date, run_time, run_duration, retries_attempted)
SELECT r.job_id, $3::int, '(Job outcome)', 0, 0,
       CASE $2::int WHEN 0 THEN 'The job failed.' WHEN 1 THEN 'The job succeeded.'
            ELSE 'The job was stopped prior to completion by ' || coalesce(r.stopped_by, r.invoked_by) || '.' END
       || format('  The Job was invoked by %s.  The last step to run was step %s (%s).',
                 r.invoked_by, s.step_id, s.step_name),
       $2::int, emulator.agent_date(r.started_at), emulator.agent_time(r.started_at),
       emulator.agent_duration(emulator_cdc.now() - r.started_at), 0
FROM ended r JOIN emulator.job_steps s USING (job_id) WHERE s.is_last
"""
# The newest row of each step stays, as sysjobservers and sysjobsteps show it.
_NEWEST = "SELECT max(instance_id) FROM emulator.job_history GROUP BY job_id, step_id"
_FORGET_OF_JOB = f"""
DELETE FROM emulator.job_history WHERE job_id = $1::uuid AND instance_id NOT IN ({_NEWEST}) AND instance_id <= (
    SELECT instance_id FROM emulator.job_history WHERE job_id = $1::uuid
    ORDER BY instance_id DESC OFFSET $2::int LIMIT 1)
"""  # noqa: S608 - constants
_FORGET = f"""
DELETE FROM emulator.job_history WHERE instance_id NOT IN ({_NEWEST}) AND instance_id <= (
    SELECT instance_id FROM emulator.job_history ORDER BY instance_id DESC OFFSET $1::int LIMIT 1)
"""  # noqa: S608 - constants
