"""The capture job of one database, a process of its own: ``python -m sqlserver_emulator.cdc.process``.

Scans, waits, scans again. It ends when its standard input does: the supervisor closes it to stop the job, and the
kernel when the supervisor is gone, so no capture job outlives its server. An idle job asks PostgreSQL one cheap
question per interval.
"""

from __future__ import annotations

import argparse
import contextlib
import select
import sys
import time
from collections.abc import Sequence
from datetime import datetime

import psycopg

from sqlserver_emulator.cdc.capture import Capture, ScanStoppedError
from sqlserver_emulator.cdc.instances import CdcDisabledError
from sqlserver_emulator.cdc.jobs import CAPTURE, JobSettings, find_job
from sqlserver_emulator.cdc.log import LogReaderError
from sqlserver_emulator.cdc.postgres import connect, runner
from sqlserver_emulator.cdc.scan_sessions import record_error

_BUSY_RETRY_SECONDS = 0.05
_ERROR_RETRY_SECONDS = 1.0
_BOOKKEEPING_SECONDS = 5.0
_LOG_SCAN_FAILED = 22859


def main(arguments: Sequence[str] | None = None) -> int:
    """0: asked to stop, or a job that is not continuous is done. 1: the server is gone."""
    parser = argparse.ArgumentParser(prog="sqlserver_emulator.cdc.process", description=__doc__)
    parser.add_argument("--conninfo", required=True, help="libpq connection string of the emulator's PostgreSQL")
    parser.add_argument("--database-id", required=True, type=int)
    parser.add_argument("--interval", type=float, help="seconds between scans; default: the job's polling interval")
    parsed = parser.parse_args(arguments)
    return CaptureJob(parsed.conninfo, parsed.database_id, parsed.interval).run()


class CaptureJob:
    def __init__(self, conninfo: str, database_id: int, interval_seconds: float | None) -> None:
        self._conninfo = conninfo
        self._database_id = database_id
        self._interval_seconds = interval_seconds
        self._input = select.poll()
        self._input.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)

    def run(self) -> int:
        settings = self._read_settings()
        if settings is None:
            return 0
        while not self._is_stopped():
            try:
                with contextlib.closing(self._open()) as capture:
                    self._scan_until_stopped(capture, settings)
                    return 0
            except (ScanStoppedError, CdcDisabledError):
                return 0
            except LogReaderError as error:
                if not error.busy:
                    self._note_error(error)
                self._wait(_BUSY_RETRY_SECONDS if error.busy else _ERROR_RETRY_SECONDS)
            except psycopg.Error as error:
                if not self._note_error(error):
                    return 1
                self._wait(_ERROR_RETRY_SECONDS)
        return 0

    def _open(self) -> Capture:
        return Capture(self._conninfo, self._database_id, is_stopped=self._is_stopped)

    def _scan_until_stopped(self, capture: Capture, settings: JobSettings) -> None:
        interval = settings.pollinginterval if self._interval_seconds is None else self._interval_seconds
        empty = _EmptyScans(capture)
        while True:
            if capture.has_news():
                for _ in range(settings.maxscans):
                    result = capture.scan(settings.maxtrans)
                    if result.drained or self._is_stopped():
                        break
                empty.note(found=result.transactions > 0, drained=result.drained)
            else:
                empty.note(found=False, drained=True)
            if not settings.continuous or self._wait(interval):
                return

    def _read_settings(self) -> JobSettings | None:
        with connect(self._conninfo) as connection:
            job = find_job(runner(connection), self._database_id, CAPTURE)
        return job.settings if job else None

    def _note_error(self, error: psycopg.Error) -> bool:
        """Show the error in sys.dm_cdc_errors; False when the server cannot be reached any more."""
        print(f"capture job of database {self._database_id}: {error}", file=sys.stderr, flush=True)
        try:
            with connect(self._conninfo) as connection:
                record_error(runner(connection), self._database_id, _LOG_SCAN_FAILED, str(error))
        except psycopg.OperationalError:
            return False
        return True

    def _is_stopped(self) -> bool:
        return self._wait(0)

    def _wait(self, seconds: float) -> bool:
        """Wait; at once True when the job is asked to stop."""
        return bool(self._input.poll(seconds * 1000))


class _EmptyScans:
    """Counts scans that found nothing, and writes what is due while nothing happens."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._count = 0
        self._began = datetime.now()
        self._due = time.monotonic() + _BOOKKEEPING_SECONDS

    def note(self, *, found: bool, drained: bool) -> None:
        self._count = 0 if found else self._count + 1
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _BOOKKEEPING_SECONDS
        if self._count:
            self._capture.record_empty_scans(self._count, self._began)
        self._count, self._began = 0, datetime.now()
        if drained:
            self._capture.write_idle_row()


if __name__ == "__main__":
    sys.exit(main())
