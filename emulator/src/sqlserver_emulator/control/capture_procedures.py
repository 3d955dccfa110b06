"""Capture and cleanup driven from outside, and the faults of the capture job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, Protocol

from sqlserver_emulator.cdc.agent.cleanup import clean_database
from sqlserver_emulator.cdc.agent.supervisor import CaptureSupervisor
from sqlserver_emulator.cdc.enabling.enable_database import find_database
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.jobs import CLEANUP, DEFAULTS, MAX_RETENTION, find_job
from sqlserver_emulator.cdc.log.reader import LogReaderError
from sqlserver_emulator.cdc.lsn import LSN_BYTES
from sqlserver_emulator.cdc.messages import cdc_error
from sqlserver_emulator.cdc.postgres import SpareConnections, connect, runner
from sqlserver_emulator.cdc.scan.capture import Capture
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.control.calls import (
    control_procedure,
    existing_database,
    refusal,
    required,
    seconds,
    text,
    whole,
)
from sqlserver_emulator.control.restore import restore_to
from sqlserver_emulator.control.restored_rows import RestoreError
from sqlserver_emulator.events import Event
from sqlserver_emulator.faults import Fault, FaultBoard, FaultKind, Match
from sqlserver_emulator.types import BIGINT, BIT, LSN, SYSNAME, TsqlType

_FLOAT: Final = TsqlType("float", precision=53)
_DATABASE: Final = Parameter("@database", SYSNAME, None)
_MOST_SECONDS: Final = 86_400.0 * 366
# Transactions in one scan; the loop repeats until the log is drained.
_SCAN_TRANSACTIONS: Final = 10_000
_READY_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.05


class CaptureHost(Protocol):
    """The part of the engine that is used."""

    conninfo: str
    scan_connections: SpareConnections
    faults: FaultBoard
    supervisor: CaptureSupervisor


class CaptureControl:
    """The procedures that drive capture and cleanup."""

    def __init__(self, host: CaptureHost) -> None:
        self._host = host

    def procedures(self) -> tuple[SystemProcedure, ...]:
        retention = (Parameter("@retention", BIGINT, None), Parameter("@threshold", BIGINT, None))
        return (
            control_procedure(
                "run_capture",
                (_DATABASE,),
                self._run_capture,
                "Capture everything that is committed now, and write an idle row if one is due, whatever "
                "the state of the job is.",
            ),
            control_procedure(
                "run_cleanup",
                (*retention, _DATABASE),
                self._run_cleanup,
                "Run the cleanup job once, with its own settings where none are given.",
            ),
            control_procedure(
                "restore_database",
                (Parameter("@to_lsn", LSN), _DATABASE, Parameter("@rows", BIT, True)),
                self._restore,
                "Restore the database to an LSN: changes, times and DDL history after it are gone, its "
                "LSNs are used again, and the rows of tracked tables are those of then. With `@rows = 0` "
                "the rows stay as they are.",
            ),
            control_procedure(
                "delay_capture",
                (Parameter("@seconds", _FLOAT), _DATABASE),
                self._delay,
                "Keep the capture job so many seconds behind; 0 ends the delay.",
            ),
            control_procedure(
                "slow_scan",
                (Parameter("@seconds", _FLOAT), _DATABASE),
                self._slow,
                "Make each scan that finds something take so much longer, with its rows not committed meanwhile.",
            ),
            control_procedure(
                "fail_capture",
                (Parameter("@message", TsqlType("nvarchar", 1024), "The Log Reader Agent failed."), _DATABASE),
                self._fail,
                "End the capture job with error 22859 and this text in `sys.dm_cdc_errors`, and again "
                "each time it is started.",
            ),
        )

    def _run_capture(self, call: ProcedureCall) -> Iterator[Event]:
        """Everything committed until now is captured when it returns, whether the job runs, lags or failed."""
        self._capture(call, _database(call))
        yield from ()

    def _capture(self, call: ProcedureCall, database: CdcDatabase) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        # A job that runs does the scan itself: only one process can read a database's log.
        while not self._host.supervisor.send_settings(database.database_id, {"scan": True}):
            try:
                capture_everything(self._host.scan_connections, database.database_id)
                break
            except LogReaderError as error:
                # Busy: the job is just starting or ending, so asking it again is right.
                if not error.busy or time.monotonic() > deadline:
                    raise
            # In PostgreSQL, so that the client can cancel the wait.
            call.engine.fetch_all("SELECT pg_sleep($1::float8)", (_RETRY_SECONDS,))

    def _restore(self, call: ProcedureCall) -> Iterator[Event]:
        """Changes after ``@to_lsn`` are gone, and what is committed from now on gets LSNs from there."""
        database, lsn = _database(call), required(call, "@to_lsn")
        if not isinstance(lsn, bytes | bytearray) or len(lsn) != LSN_BYTES:
            raise refusal("@to_lsn must be binary(10).")
        # The restore commits on a connection of its own, so it cannot be a part of the caller's transaction.
        if call.in_transaction:
            raise refusal("emulator.restore_database cannot run inside a transaction.")
        with connect(self._host.conninfo) as connection, connection.transaction():
            try:
                restore_to(
                    # Called back after the tables are locked: nothing is committed behind it.
                    runner(connection),
                    database,
                    bytes(lsn),
                    lambda: self._capture(call, database),
                    with_rows=bool(call.arguments["@rows"]),
                )
            except RestoreError as error:
                raise refusal(
                    f"Database '{database.name}' cannot be restored to 0x{lsn.hex().upper()}: {error}."
                ) from None
        yield from ()

    def _run_cleanup(self, call: ProcedureCall) -> Iterator[Event]:
        """One run of the cleanup job, with its settings where none are given; there need not be a job."""
        database = _database(call)
        with connect(self._host.conninfo) as connection:
            run = runner(connection)
            job = find_job(run, database.database_id, CLEANUP)
            settings = job.settings if job else DEFAULTS[CLEANUP]
            retention, threshold = settings.retention, settings.threshold
            if call.arguments["@retention"] is not None:
                retention = whole(call, "@retention", 0, MAX_RETENTION)
            if call.arguments["@threshold"] is not None:
                threshold = whole(call, "@threshold", 1, 2**31 - 1)
            # Each batch of deletions commits for itself, as the cleanup job's does.
            clean_database(run, database, retention, threshold=threshold, atomic=connection.transaction)
        yield from ()

    def _delay(self, call: ProcedureCall) -> Iterator[Event]:
        yield from self._add(call, FaultKind.CAPTURE_DELAY, seconds(call, "@seconds", _MOST_SECONDS))

    def _slow(self, call: ProcedureCall) -> Iterator[Event]:
        yield from self._add(call, FaultKind.SLOW_SCAN, seconds(call, "@seconds", _MOST_SECONDS))

    def _fail(self, call: ProcedureCall) -> Iterator[Event]:
        yield from self._add(call, FaultKind.CAPTURE_FAILURE)

    def _add(self, call: ProcedureCall, kind: FaultKind, value: float = 0.0) -> Iterator[Event]:
        database = _database(call)
        detail = text(call, "@message") if kind is FaultKind.CAPTURE_FAILURE else ""
        fault = Fault(kind, Match(database.name), value=value, detail=detail, database_id=database.database_id)
        # Added first: the job reads the board when it is asked to apply the faults.
        self._host.faults.add(fault)
        self._host.supervisor.apply_faults(database.database_id)
        yield from ()


def capture_everything(connections: SpareConnections, database_id: int) -> None:
    """One scan without the job. Raises LogReaderError, ``busy`` while the job reads the log."""
    with connections.lend() as connection:
        capture = Capture(connections.conninfo, database_id, connection=connection)
        try:
            while not capture.scan(_SCAN_TRANSACTIONS).drained:
                continue
            capture.write_idle_row()
        finally:
            capture.close()


def _database(call: ProcedureCall) -> CdcDatabase:
    """The database that is named, or the current one. Raises 49998 and 22901."""
    name = existing_database(call, text(call, "@database") or call.engine.database)
    database = find_database(call.engine.fetch_all, name)
    if database is None:
        raise cdc_error(22901, name)
    return database
