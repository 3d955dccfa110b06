"""``SqlServerJobs``: reads and controls CDC's capture and cleanup jobs through the server's own procedures."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.core.errors import CdcNotEnabledError, FloodmarkError, SourceAdminError, SourceUnavailableError
from floodmark.core.schema import TableName
from floodmark.core.source.capture_status import CaptureJobStatus, LogScan
from floodmark.core.source.liveness import Heartbeat
from floodmark.core.source.scripts import bracket_table, enable_table, insert_heartbeat, make_heartbeat
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.sql_files import read_sql
from floodmark.sources.sqlserver.tsql import change_table

_CAPTURE = "capture"
_JOB_COLUMNS = ("maxtrans", "maxscans", "continuous", "pollinginterval", "retention", "threshold")
_STATE_LIMIT_SECONDS = 30.0
_REFUSED_LIMIT_SECONDS = 5.0
_POLL_SECONDS = 0.2

Row = tuple[Any, ...]


class SqlServerJobs:
    """``sync.ports.capture.CaptureControl``. Each call opens and closes one connection."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_capture(self) -> CaptureJobStatus:
        with self._connect() as session:
            return _read_capture(session)

    def start_capture(self) -> None:
        self._switch_to(running=True)

    def stop_capture(self) -> None:
        self._switch_to(running=False)

    def change_capture(self, changes: Mapping[str, int]) -> None:
        with self._connect() as session:
            change_job(session, _CAPTURE, changes)

    def read_heartbeat(self, table: TableName) -> Heartbeat:
        name = bracket_table(table)
        with self._connect() as session:
            instance = session.fetch(read_sql("read_heartbeat_instance"), (name, name))[0]
            if instance[0] is None:
                raise CdcNotEnabledError(str(table), "the table does not exist.", make_heartbeat(table))
            if instance[1] is None:
                raise CdcNotEnabledError(str(table), "its changes are not captured.", enable_table(table))
            text = read_sql("read_heartbeat").format(table=name, change_table=change_table(instance[1]))
            rows = session.fetch(text)
        if not rows:
            raise CdcNotEnabledError(str(table), "its row no longer exists.", insert_heartbeat(table))
        return Heartbeat(*rows[0])

    def beat(self, table: TableName, *, afresh: bool) -> None:
        with self._connect() as session:
            session.fetch_sets(read_sql("beat").format(table=bracket_table(table)), (int(afresh),))

    def _connect(self) -> SourceSession:
        return connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS)

    def _switch_to(self, *, running: bool) -> None:
        """Start or stop the job, and wait until it is in that state.

        The Agent works asynchronously, and refuses a request that another session has made already, without an error
        number. So only the state of the job shows whether the request succeeded.
        """
        with self._connect() as session:
            if _is_running(session) == running:
                return
            refusal = None
            try:
                session.fetch_sets(read_sql("start_capture" if running else "stop_capture"))
            except FloodmarkError as error:
                refusal = error
            deadline = time.monotonic() + (_REFUSED_LIMIT_SECONDS if refusal else _STATE_LIMIT_SECONDS)
            while _is_running(session) != running:
                is_late = time.monotonic() > deadline
                if is_late and refusal is not None:
                    # The Agent's message is about its jobs and contains no value of a row.
                    raise SourceAdminError(
                        str(self._connection),
                        f"the capture job was not {'started' if running else 'stopped'}: "
                        f"{refusal.detail or refusal.message}",
                        "Check the job's history in SQL Server Agent, and whether the Agent is running.",
                    )
                if is_late:
                    raise SourceUnavailableError(
                        str(self._connection),
                        f"the capture job did not {'start' if running else 'stop'} in {_STATE_LIMIT_SECONDS:.0f} s.",
                        "Check the job's history in SQL Server Agent.",
                    )
                threading.Event().wait(_POLL_SECONDS)


def _read_capture(session: SourceSession) -> CaptureJobStatus:
    databases, jobs, scans, errors = session.fetch_sets(read_sql("read_capture"))
    database, edition, taken_at, running, log_reuse_wait, used, newest_entry_at, ahead, is_replica = databases[0]
    return CaptureJobStatus(
        database=database,
        engine_edition=edition,
        taken_at=taken_at,
        job=read_jobs(jobs).get(_CAPTURE),
        running=None if running is None else bool(running),
        log_reuse_wait=log_reuse_wait,
        log_used_percent=used,
        newest_entry_at=newest_entry_at,
        scan=LogScan(scans[0][0], scans[0][1] or 0, scans[0][2] or 0, scans[0][3] or 0) if scans else None,
        error=f"{errors[0][0]}: {errors[0][1]}" if errors else None,
        clock_ahead_seconds=clock_ahead_seconds(ahead),
        is_replica=bool(is_replica),
    )


def clock_ahead_seconds(minutes: int | None) -> float:
    """Return how far the clock was set forward. One set back makes ages shorter, which no limit must allow for."""
    return max(minutes or 0, 0) * 60.0


def read_jobs(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Return the jobs by type from ``sys.sp_cdc_help_jobs``.

    Columns are taken from the end: some versions have job_name after job_type.
    """
    return {
        row[1]: {name: int(value) for name, value in zip(_JOB_COLUMNS, row[-len(_JOB_COLUMNS) :], strict=True)}
        for row in rows
    }


def _is_running(session: SourceSession) -> bool | None:
    running = session.fetch(read_sql("read_capture_running"))[0][0]
    return None if running is None else bool(running)


def change_job(session: SourceSession, job_type: str, changes: Mapping[str, int]) -> None:
    """Change a job. The names are those of the procedure's parameters; values are bound."""
    unknown = set(changes) - set(_JOB_COLUMNS)
    if unknown:
        raise ValueError(f"sys.sp_cdc_change_job has no {', '.join(sorted(unknown))}")
    values = [job_type, *(changes.get(name) for name in _JOB_COLUMNS)]
    session.fetch_sets(read_sql("change_job"), values)
