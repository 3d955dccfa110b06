"""Bookkeeping of log scans for ``sys.dm_cdc_log_scan_sessions`` and ``sys.dm_cdc_errors``: the last 32 sessions.

Scans that found something are recorded in the transaction of the scan; empty ones are only counted, a few seconds at a
time, because each record is a write to the very log that is scanned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlserver_emulator.cdc.lsn import ZERO_LSN, lsn_text
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.errors import SqlServerError

# docs/reference/sqlserver_cdc.md, "Dynamic views".
_KEPT_SESSIONS = 32
_NO_LSN = lsn_text(ZERO_LSN)


@dataclass(slots=True)
class ScanSession:
    """One scan. LSNs are ten bytes; seconds since 1970."""

    started_at: datetime = field(default_factory=datetime.now)
    first_lsn: bytes = ZERO_LSN
    first_begin_lsn: bytes = ZERO_LSN
    last_commit_lsn: bytes = ZERO_LSN
    last_commit_seconds: float = 0.0
    transactions: int = 0
    log_records: int = 0
    commands: int = 0
    schema_changes: int = 0

    def note_transaction(self, begin_lsn: bytes, commit_lsn: bytes, seconds: float) -> None:
        """Count a captured transaction."""
        if not self.transactions:
            self.first_lsn = self.first_begin_lsn = begin_lsn
        self.transactions += 1
        self.last_commit_lsn = commit_lsn
        self.last_commit_seconds = seconds


def record_session(run: Run, database_id: int, session: ScanSession) -> None:
    """Record a finished scan with transactions: one row."""
    run(
        _SESSION_ROW,
        (
            database_id,
            session.started_at,
            lsn_text(session.first_lsn),
            lsn_text(session.last_commit_lsn),
            session.transactions,
            session.last_commit_seconds,
            session.log_records,
            session.schema_changes,
            session.commands,
            lsn_text(session.first_begin_lsn),
        ),
    )
    _forget_old(run, database_id)


def record_empty_scans(run: Run, database_id: int, count: int, started_at: datetime) -> None:
    """Record ``count`` scans that found nothing: in the newest row if that is empty too, else in a row of their own."""
    # docs/reference/sqlserver_cdc.md, "Dynamic views": consecutive empty scans share one row.
    if not run(_COUNT_EMPTY_SCANS, (database_id, count)):
        run(_EMPTY_SESSION_ROW, (database_id, count, started_at))
        _forget_old(run, database_id)


def record_errors(run: Run, database_id: int, errors: Sequence[SqlServerError]) -> None:
    """Record a failed scan: a session with its errors."""
    ((session_id,),) = run(_FAILED_SESSION_ROW, (database_id, len(errors)))
    for error in errors:
        run(_ERROR_ROW, (database_id, session_id, error.number, error.message, _NO_LSN))
    _forget_old(run, database_id)


def forget_sessions(run: Run) -> None:
    """Empty the views, as a start of the server does."""
    run("DELETE FROM emulator.cdc_log_scan_sessions", ())
    run("DELETE FROM emulator.cdc_log_scan_totals", ())
    run("DELETE FROM emulator.cdc_errors", ())


def _forget_old(run: Run, database_id: int) -> None:
    ((newest,),) = run(
        "SELECT max(session_id) FROM emulator.cdc_log_scan_sessions WHERE database_id = $1::int", (database_id,)
    )
    # What is deleted still counts in session 0, the aggregate: `_FORGET_OLD` adds it to the totals.
    oldest = int(str(newest)) - _KEPT_SESSIONS + 1
    for statement in _FORGET_OLD:
        run(statement, (database_id, oldest))


# The LEFT JOIN with its GROUP BY gives one row also where the database has no session yet; max() is NULL then.
_SESSION_ROW = """
INSERT INTO emulator.cdc_log_scan_sessions (database_id, session_id, start_time, end_time, duration, scan_phase,
    start_lsn, current_lsn, end_lsn, tran_count, last_commit_lsn, last_commit_time, log_record_count,
    schema_change_count, command_count, first_begin_cdc_lsn, last_commit_cdc_lsn, last_commit_cdc_time, latency)
SELECT $1::int, coalesce(max(session_id), 0) + 1, began, n::timestamp, extract(epoch FROM n::timestamp - began)::bigint,
       'Done', $3::text, $4::text, $4::text, $5::bigint,
       $4::text, to_timestamp(committed)::timestamp, $7::bigint, $8::int, $9::bigint, $10::text, $4::text,
       to_timestamp(committed)::timestamp, coalesce(greatest(0, extract(epoch FROM n) - committed), 0)::int
FROM (SELECT clock_timestamp() + emulator.clock_shift(), $2::timestamp + emulator.clock_shift(), nullif($6::float8, 0))
    AS clock(n, began, committed)
LEFT JOIN emulator.cdc_log_scan_sessions ON database_id = $1::int
GROUP BY n, began, committed
"""
_COUNT_EMPTY_SCANS = """
UPDATE emulator.cdc_log_scan_sessions s
SET empty_scan_count = s.empty_scan_count + $2::int, end_time = emulator.now()
WHERE s.database_id = $1::int AND s.tran_count = 0 AND s.error_count = 0
  AND s.session_id = (SELECT max(n.session_id) FROM emulator.cdc_log_scan_sessions n WHERE n.database_id = $1::int)
RETURNING 1
"""
_EMPTY_SESSION_ROW = """
INSERT INTO emulator.cdc_log_scan_sessions (database_id, session_id, start_time, end_time, scan_phase, empty_scan_count)
SELECT $1::int, coalesce(max(session_id), 0) + 1, $3::timestamp + emulator.clock_shift(), emulator.now(), 'Done',
       $2::int
FROM emulator.cdc_log_scan_sessions WHERE database_id = $1::int
"""
_FAILED_SESSION_ROW = """
INSERT INTO emulator.cdc_log_scan_sessions (database_id, session_id, start_time, end_time, scan_phase, error_count,
    failed_sessions_count)
SELECT $1::int, coalesce(max(session_id), 0) + 1, emulator.now(), emulator.now(),
       'Last scan', $2::int, 1
FROM emulator.cdc_log_scan_sessions WHERE database_id = $1::int RETURNING session_id
"""
_ERROR_ROW = """
INSERT INTO emulator.cdc_errors (database_id, session_id, phase_number, error_number, error_severity, error_state,
    error_message, start_lsn, begin_lsn, sequence_value)
VALUES ($1::int, $2::int, 7, $3::int, 16, 1, left($4::text, 1024), $5::text, $5::text, $5::text)
"""
_FORGET_OLD = (
    """
WITH gone AS (
    DELETE FROM emulator.cdc_log_scan_sessions WHERE database_id = $1::int AND session_id < $2::int RETURNING *)
INSERT INTO emulator.cdc_log_scan_totals AS t
SELECT database_id, min(start_time), sum(duration), sum(error_count), sum(tran_count), sum(log_record_count),
    sum(schema_change_count), sum(command_count), sum(empty_scan_count), sum(failed_sessions_count)
FROM gone GROUP BY database_id
ON CONFLICT (database_id) DO UPDATE SET duration = t.duration + excluded.duration,
    error_count = t.error_count + excluded.error_count, tran_count = t.tran_count + excluded.tran_count,
    log_record_count = t.log_record_count + excluded.log_record_count,
    schema_change_count = t.schema_change_count + excluded.schema_change_count,
    command_count = t.command_count + excluded.command_count,
    empty_scan_count = t.empty_scan_count + excluded.empty_scan_count,
    failed_sessions_count = t.failed_sessions_count + excluded.failed_sessions_count
""",
    "DELETE FROM emulator.cdc_errors WHERE database_id = $1::int AND session_id < $2::int",
)
