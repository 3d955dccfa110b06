"""``sp_cdc_scan`` and ``sp_cdc_cleanup_change_table``: the work of the jobs by hand.

See docs/reference/sqlserver_cdc.md, "Scan by hand" and "Cleanup".
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial

import psycopg

from sqlserver_emulator.cdc.agent.cleanup import check_low_water_mark, delete_changes, raise_low_end, trim_timeline
from sqlserver_emulator.cdc.enabling.enable_database import find_database
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.jobs import (
    DEFAULT_MAXSCANS,
    DEFAULT_MAXTRANS,
    DEFAULT_THRESHOLD,
    JobSettings,
    check_scan_settings,
    is_requested,
)
from sqlserver_emulator.cdc.log.reader import LogReaderError
from sqlserver_emulator.cdc.messages import cdc_error, cdc_warning
from sqlserver_emulator.cdc.postgres import SpareConnections, SqlConnection, connect, runner
from sqlserver_emulator.cdc.procedures.results import int_argument, require_cdc, require_owner, required_text, sql_of
from sqlserver_emulator.cdc.scan.capture import Capture
from sqlserver_emulator.cdc.scan.scan_errors import scan_failures
from sqlserver_emulator.cdc.scan.scan_sessions import record_errors
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import BIGINT, BIT, INT, LSN, SYSNAME, TsqlType

_STOPPING_SECONDS = 5.0
_RETRY_SECONDS = 0.02
_DELETE_FAILURES = frozenset({1205, 1222})
"""Deadlock and lock timeout: cleanup says so and goes on."""
_SETTINGS = ("maxtrans", "maxscans", "continuous", "pollinginterval")


def _scan(connections: SpareConnections, call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    database = require_cdc(call)
    values = {name: int_argument(call, f"@{name}") or 0 for name in _SETTINGS}
    if values["continuous"] not in (0, 1):
        raise cdc_error(22998)
    settings = JobSettings(
        values["maxtrans"], values["maxscans"], bool(values["continuous"]), values["pollinginterval"]
    )
    check_scan_settings(settings)
    run = sql_of(call)
    with (
        connections.lend() as connection,
        contextlib.closing(_open_capture(call, database, connections.conninfo, connection)) as capture,
        _reported_failures(connections, database),
    ):
        while True:
            for _ in range(settings.maxscans):
                if capture.scan(settings.maxtrans).drained:
                    break
            if not settings.continuous:
                break
            # Waits on the caller's connection, so that the client can cancel.
            run("SELECT pg_sleep($1::float8)", (settings.pollinginterval,))
    yield from ()


@contextlib.contextmanager
def _reported_failures(connections: SpareConnections, database: CdcDatabase) -> Iterator[None]:
    """Record failures of the log's reader in sys.dm_cdc_errors, and raise them as the caller's error."""
    try:
        yield
    except psycopg.Error as error:
        failures = scan_failures(error)
        with connect(connections.conninfo) as connection:
            record_errors(runner(connection), database.database_id, failures)
        raise failures[-1] from error


def _open_capture(call: ProcedureCall, database: CdcDatabase, conninfo: str, connection: SqlConnection) -> Capture:
    """Open the log; a job that was just stopped is given the time to end. Raises 22903 while another reader has it."""
    run = sql_of(call)
    deadline = time.monotonic() + _STOPPING_SECONDS
    while True:
        try:
            return Capture(conninfo, database.database_id, connection=connection)
        except LogReaderError as error:
            if not error.busy:
                raise
        # A job that shall run keeps the log, so waiting is of no use. One that was stopped is about to leave it.
        if is_requested(run, database.database_id) or time.monotonic() > deadline:
            break
        run("SELECT pg_sleep($1::float8)", (_RETRY_SECONDS,))
    readers = run("SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1::text::name", (database.slot,))
    raise cdc_error(22903, readers[0][0] if readers else 0)


def _cleanup(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    run, name = sql_of(call), call.engine.database
    # docs/reference/sqlserver_cdc.md, "Cleanup", has the order of the checks; 22910 takes the place of 22901 here.
    database = find_database(run, name)
    if database is None:
        raise cdc_error(22910, name)
    threshold = int_argument(call, "@threshold")
    if threshold is None or threshold <= 0:
        raise cdc_error(22850)
    instance = required_text(call, "@capture_instance")
    rows = run(
        database.sql("SELECT object_id FROM :cdc.change_tables WHERE lower(capture_instance) = lower($1::varchar)"),
        (instance,),
    )
    if not rows:
        raise cdc_error(22920, instance, name)
    given = call.arguments["@low_water_mark"]
    low_water_mark = bytes(given) if isinstance(given, bytes | bytearray) else None
    if low_water_mark is not None:
        check_low_water_mark(run, database, instance, low_water_mark)
    mark = raise_low_end(run, database, rows[0][0], low_water_mark, atomic=call.engine.atomic)
    # From here on the start is raised, so failures are warnings (docs/reference/sqlserver_cdc.md, "Cleanup").
    call.outputs["@fCleanupFailed"] = False
    steps: dict[int, Callable[[], None]] = {
        22852: lambda: delete_changes(run, rows[0][0], mark, threshold),
        22853: lambda: trim_timeline(run, database, threshold),
    }
    for warning, step in steps.items():
        try:
            step()
        except SqlServerError as error:
            if error.number not in _DELETE_FAILURES:
                raise
            call.outputs["@fCleanupFailed"] = True
            yield cdc_warning(warning, name, "DELETE", error.number, error.message)


def manual_procedures(connections: SpareConnections) -> tuple[SystemProcedure, ...]:
    """Return both. ``connections``: for scans."""
    return (
        SystemProcedure(
            "sp_cdc_scan",
            (
                Parameter("@maxtrans", INT, DEFAULT_MAXTRANS),
                Parameter("@maxscans", INT, DEFAULT_MAXSCANS),
                Parameter("@continuous", TsqlType("tinyint"), 0),
                Parameter("@pollinginterval", BIGINT, 0),
            ),
            partial(_scan, connections),
        ),
        SystemProcedure(
            "sp_cdc_cleanup_change_table",
            (
                Parameter("@capture_instance", SYSNAME),
                Parameter("@low_water_mark", LSN),
                Parameter("@threshold", BIGINT, DEFAULT_THRESHOLD),
                Parameter("@fCleanupFailed", BIT, False, output=True),
            ),
            _cleanup,
        ),
    )
