"""The log scans of a stream, for ``sys.dm_change_feed_log_scan_sessions``.

A record is a write to the very log that is scanned, so scans that found nothing are counted, and recorded together.
"""

from __future__ import annotations

import time

from sqlserver_emulator.cdc.lsn import lsn_text
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.scan.scan_sessions import ScanSession

_EMPTY_SECONDS = 5.0
"""The time between two records of empty scans."""


class ScanRecords:
    """Records the scans of one database's stream. Not thread-safe."""

    def __init__(self, run: Run, database_id: int) -> None:
        self._run = run
        self._database_id = database_id
        self._empty: ScanSession | None = None
        self._empty_scans = 0
        self._recorded_at = -_EMPTY_SECONDS

    def add(self, scan: ScanSession) -> None:
        """Take a scan that has ended, and was not a failure."""
        if not scan.transactions:
            if self._empty is None:
                self._empty = scan
            else:
                self._empty.log_records += scan.log_records
            self._empty_scans += 1
            if time.monotonic() < self._recorded_at + _EMPTY_SECONDS:
                return
        if self._empty is not None:
            self._record(self._empty, self._empty_scans)
            self._empty, self._empty_scans = None, 0
            self._recorded_at = time.monotonic()
        if scan.transactions:
            self._record(scan, 0)

    def _record(self, scan: ScanSession, empty: int) -> None:
        lsns = lsn_text(scan.first_lsn), lsn_text(scan.last_commit_lsn)
        counts = scan.transactions, scan.log_records, scan.schema_changes, scan.commands, empty
        self._run(_RECORD, (self._database_id, scan.started_at, *lsns, scan.last_commit_seconds, *counts))


_RECORD = """
SELECT emulator.record_stream_scan($1::int, $2::timestamp + emulator.clock_shift(), $3::text, $4::text, $5::float8,
    $6::bigint, $7::bigint, $8::int, $9::bigint, $10::int, 0)
"""
