"""The capture job of one database, a process of its own: ``python -m sqlserver_emulator.cdc.agent.process``.

Scans, waits, scans again. It ends when its standard input does: the supervisor closes it to stop the job, and the
kernel when the supervisor is gone, so no capture job outlives its server. An idle job asks PostgreSQL one cheap
question per interval.

A notification there is a JSON object in a line: ``delay_seconds`` and ``scan_seconds`` (how far it stays behind, how
long a scan lasts), or ``scan``: capture all that is committed, now. A line comes back when that is done.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg

from sqlserver_emulator.cdc.agent.history import note_failure
from sqlserver_emulator.cdc.agent.job_process import GIVEN_UP
from sqlserver_emulator.cdc.instances import CdcDisabledError
from sqlserver_emulator.cdc.jobs import CAPTURE, JobSettings, find_job
from sqlserver_emulator.cdc.log.reader import LogReaderError
from sqlserver_emulator.cdc.postgres import connect, runner
from sqlserver_emulator.cdc.scan.capture import Capture, ScanResult, ScanStoppedError
from sqlserver_emulator.cdc.scan.scan_errors import scan_failures
from sqlserver_emulator.cdc.scan.scan_sessions import record_errors

_BUSY_RETRY_SECONDS = 0.05
_ERROR_RETRY_SECONDS = 1.0
_BOOKKEEPING_SECONDS = 5.0
_INPUT_BYTES = 4096


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. Return 0 when it was asked to stop or, not continuous, is done; 1 when the server is gone; GIVEN_UP
    when it failed too often."""
    parser = argparse.ArgumentParser(prog="sqlserver_emulator.cdc.agent.process", description=__doc__)
    parser.add_argument("--conninfo", required=True, help="libpq connection string of the emulator's PostgreSQL")
    parser.add_argument("--database-id", required=True, type=int)
    parser.add_argument("--interval", type=float, help="seconds between scans; default: the job's polling interval")
    parser.add_argument("--settings", type=json.loads, default={}, help="settings of the job at its start")
    parsed = parser.parse_args(arguments)
    job = CaptureJob(parsed.conninfo, parsed.database_id, parsed.interval)
    job.take_settings(parsed.settings)
    return job.run()


class CaptureJob:
    """The loop of one database's capture job, from its settings to its end."""

    def __init__(self, conninfo: str, database_id: int, interval_seconds: float | None) -> None:
        self._conninfo = conninfo
        self._database_id = database_id
        self._interval_seconds = interval_seconds
        self._delay_seconds = 0.0
        self._scan_seconds = 0.0
        self._is_scan_wanted = False
        self._unanswered = 0
        self._received = b""
        self._has_ended_input = False
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
            except psycopg.Error as error:
                # Busy is no failure: the job before this one is just ending, or a scan by hand has the log.
                is_busy = isinstance(error, LogReaderError) and error.busy
                code = 0 if is_busy else self._note_error(error)
                if code:
                    return code
                self._wait(_BUSY_RETRY_SECONDS if is_busy else _ERROR_RETRY_SECONDS)
        return 0

    def _open(self) -> Capture:
        return Capture(self._conninfo, self._database_id, is_stopped=self._is_stopped)

    def _scan_until_stopped(self, capture: Capture, settings: JobSettings) -> None:
        interval = settings.pollinginterval if self._interval_seconds is None else self._interval_seconds
        empty = _EmptyScans(capture)
        while True:
            # The state before the scan: a request that comes during it may be about what was committed too late for it,
            # and needs another scan.
            answers, is_wanted = self._unanswered, self._is_scan_wanted
            result = self._scan(capture, settings, everything=is_wanted)
            empty.note(found=result.transactions > 0, drained=result.drained, is_due=is_wanted)
            if self._unanswered == answers:
                self._is_scan_wanted = False
            if result.drained or not self._has_ended_input:
                self._answer(answers)  # of a job that was stopped instead, its end is the answer
            if not settings.continuous or self._wait(0 if self._unanswered else interval):
                return

    def _scan(self, capture: Capture, settings: JobSettings, *, everything: bool) -> ScanResult:
        """Scan as the settings say, or everything that is committed."""
        # The value at the start: a scan that became slow in its middle would delay the answer to the very request.
        slow_seconds = 0.0 if everything else self._scan_seconds
        if not capture.has_news():
            return ScanResult(0, drained=True)
        found, scans = 0, 0
        while True:
            result = capture.scan(
                settings.maxtrans,
                delay_seconds=0.0 if everything else self._delay_seconds,
                pause=lambda: self._wait(min(slow_seconds, self._scan_seconds)),
            )
            found, scans = found + result.transactions, scans + 1
            # docs/reference/sqlserver_cdc.md, "Capture and cleanup jobs": one cycle takes at most maxtrans times
            # maxscans transactions.
            is_enough = scans >= settings.maxscans and not everything
            if result.drained or result.is_held or is_enough or self._is_stopped():
                capture.show_holding(is_holding=result.is_held)
                return ScanResult(found, result.drained)

    def _read_settings(self) -> JobSettings | None:
        with connect(self._conninfo) as connection:
            job = find_job(runner(connection), self._database_id, CAPTURE)
        return job.settings if job else None

    def _note_error(self, error: psycopg.Error) -> int:
        """Show the error in sys.dm_cdc_errors and in the job's history; return the code to end with, 0 to go on."""
        print(f"capture job of database {self._database_id}: {error}", file=sys.stderr, flush=True)
        errors = scan_failures(error)
        try:
            with connect(self._conninfo) as connection:
                run = runner(connection)
                record_errors(run, self._database_id, errors)
                job = find_job(run, self._database_id, CAPTURE)
                return 0 if job is None or note_failure(run, job, errors) else GIVEN_UP
        except psycopg.OperationalError:
            return 1
        except psycopg.errors.ForeignKeyViolation:
            return 0  # CDC was disabled meanwhile

    def _is_stopped(self) -> bool:
        return self._wait(0)

    def _wait(self, seconds: float) -> bool:
        """Wait; True at once when the job is asked to stop, False early when a notification arrives."""
        if not self._has_ended_input and self._input.poll(seconds * 1000):
            self._read_input()
        return self._has_ended_input

    def _read_input(self) -> None:
        data = os.read(sys.stdin.fileno(), _INPUT_BYTES)
        # Reading nothing is the end of the pipe.
        self._has_ended_input = not data
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self.take_settings(json.loads(line))
            self._unanswered += 1

    def take_settings(self, settings: Mapping[str, Any]) -> None:
        self._delay_seconds = float(settings.get("delay_seconds", self._delay_seconds))
        self._scan_seconds = float(settings.get("scan_seconds", self._scan_seconds))
        self._is_scan_wanted = self._is_scan_wanted or bool(settings.get("scan"))

    def _answer(self, count: int) -> None:
        self._unanswered -= count
        if count:
            print("done\n" * count, end="", flush=True)


class _EmptyScans:
    """Counts scans that found nothing, and writes what is due while nothing happens."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._count = 0
        self._began = datetime.now()
        self._due = time.monotonic() + _BOOKKEEPING_SECONDS

    def note(self, *, found: bool, drained: bool, is_due: bool) -> None:
        self._count = 0 if found else self._count + 1
        if time.monotonic() < self._due and not is_due:
            return
        self._due = time.monotonic() + _BOOKKEEPING_SECONDS
        if self._count:
            self._capture.record_empty_scans(self._count, self._began)
        self._count, self._began = 0, datetime.now()
        if drained:
            self._capture.write_idle_row()


if __name__ == "__main__":
    sys.exit(main())
