"""``sp_cdc_add_job``, ``change``, ``drop``, ``start``, ``stop``, ``help_jobs``; ``sp_cdc_scan`` and
``sp_cdc_cleanup_change_table``, the same work done by hand (reference cdc.md A.8 to A.10).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import UUID

import psycopg

from sqlserver_emulator.cdc.capture import Capture
from sqlserver_emulator.cdc.cleanup import check_low_water_mark, delete_changes, raise_low_end, trim_timeline
from sqlserver_emulator.cdc.enable_database import find_database
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.jobs import (
    CAPTURE,
    CLEANUP,
    DEFAULT_MAXSCANS,
    DEFAULT_MAXTRANS,
    DEFAULT_POLLING_INTERVAL,
    DEFAULT_RETENTION,
    DEFAULT_THRESHOLD,
    DEFAULTS,
    Job,
    JobSettings,
    add_job,
    change_job,
    check_scan_settings,
    check_settings,
    drop_job,
    find_job,
    is_requested,
    list_jobs,
    request_start,
    request_stop,
)
from sqlserver_emulator.cdc.log import LogReaderError
from sqlserver_emulator.cdc.messages import AgentError, cdc_error, cdc_warning
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.postgres import connect, runner, server_conninfo
from sqlserver_emulator.cdc.results import (
    ResultColumn,
    int_argument,
    printed,
    require_cdc,
    require_owner,
    required_text,
    result_set,
    sql_of,
    text_argument,
)
from sqlserver_emulator.cdc.scan_errors import scan_failures
from sqlserver_emulator.cdc.scan_sessions import record_errors
from sqlserver_emulator.engine.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import ErrorRaised, Event, StatementDone
from sqlserver_emulator.types import BIGINT, BIT, INT, LSN, SYSNAME, TsqlType

_JOB_TYPE = TsqlType("nvarchar", 20)
_HELP_COLUMNS: tuple[ResultColumn, ...] = (
    ("job_id", TsqlType("uniqueidentifier")), ("job_type", _JOB_TYPE), ("maxtrans", INT), ("maxscans", INT),
    ("continuous", BIT), ("pollinginterval", BIGINT), ("retention", BIGINT), ("threshold", BIGINT),
)  # fmt: skip
_STOPPING_SECONDS = 5.0
_RETRY_SECONDS = 0.02
_DELETE_FAILURES = frozenset({1205, 1222})
"""Deadlock and lock timeout: cleanup says so and goes on."""
_SETTINGS = ("maxtrans", "maxscans", "continuous", "pollinginterval", "retention", "threshold")
_CAPTURE_SETTINGS = frozenset(_SETTINGS[:4])


def _job_type(call: ProcedureCall) -> str:
    """Raises 22992."""
    kind = text_argument(call, "@job_type")
    if kind is None or kind.lower() not in (CAPTURE, CLEANUP):
        raise cdc_error(22992, "NULL" if kind is None else kind)
    return kind.lower()


def _own_job(call: ProcedureCall, database: CdcDatabase) -> Job:
    """The job the caller names; raises 22997."""
    kind = _job_type(call)
    job = find_job(sql_of(call), database.database_id, kind)
    if job is None:
        raise cdc_error(22997, kind)
    return job


def _given(call: ProcedureCall) -> dict[str, int]:
    values = {name: int_argument(call, f"@{name}") for name in _SETTINGS}
    return {name: value for name, value in values.items() if value is not None}


def _with(settings: JobSettings, given: dict[str, int], kind: str) -> JobSettings:
    own = {name: value for name, value in given.items() if (name in _CAPTURE_SETTINGS) == (kind == CAPTURE)}
    if "continuous" in own:
        own["continuous"] = bool(own["continuous"])
    return replace(settings, **own)  # type: ignore[arg-type]


def _add_job(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    database = require_cdc(call)
    kind = _job_type(call)
    run = sql_of(call)
    if find_job(run, database.database_id, kind) is not None:
        raise SqlServerError(14261, f"The specified @name ('cdc.{database.name}_{kind}') already exists.")
    settings = _with(DEFAULTS[kind], _given(call), kind)
    if not settings.continuous:
        settings = replace(settings, pollinginterval=0)
    check_settings(kind, settings)
    with call.engine.atomic():
        job = add_job(run, database.database_id, database.name, kind, settings)
    if call.arguments["@start_job"]:
        yield from _ask_agent(call, job, request_start)


def _change_job(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    database = require_cdc(call)
    job = _own_job(call, database)
    given = _given(call)
    if job.job_type == CAPTURE and given.keys() - _CAPTURE_SETTINGS:
        raise cdc_error(22995)
    if job.job_type == CLEANUP and given.keys() & _CAPTURE_SETTINGS:
        raise cdc_error(22996)
    # One of the two settles the other: a job that polls is continuous, one that is not does not poll.
    if given.get("continuous") == 0:
        given.setdefault("pollinginterval", 0)
    elif given.get("pollinginterval"):
        given["continuous"] = 1
    settings = _with(job.settings, given, job.job_type)
    check_settings(job.job_type, settings)
    change_job(sql_of(call), job, settings)
    yield from ()


def _drop_job(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    job = _own_job(call, require_cdc(call))
    with call.engine.atomic():
        drop_job(sql_of(call), job)
    yield from ()


def _start_job(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    job = _own_job(call, require_cdc(call))
    yield from _ask_agent(call, job, request_start)


def _stop_job(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    job = _own_job(call, require_cdc(call))
    yield from _ask_agent(call, job, request_stop)


def _ask_agent(call: ProcedureCall, job: Job, request: Callable[[Run, Job, str], str]) -> Iterator[Event]:
    """The Agent is no part of the engine: what it refuses goes to the client, and no CATCH sees it."""
    try:
        yield printed(request(sql_of(call), job, call.engine.login))
    except AgentError as refusal:
        call.return_code = 1
        yield ErrorRaised(refusal)
        yield StatementDone(failed=True)


def _help_jobs(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    database = require_cdc(call)
    rows = [
        (
            UUID(job.job_id), job.job_type, job.settings.maxtrans, job.settings.maxscans, job.settings.continuous,
            job.settings.pollinginterval, job.settings.retention, job.settings.threshold,
        )
        for job in list_jobs(sql_of(call), database.database_id)
    ]  # fmt: skip
    yield from result_set(_HELP_COLUMNS, rows)


def _scan(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    database = require_cdc(call)
    values = {name: int_argument(call, f"@{name}") or 0 for name in _SETTINGS[:4]}
    if values["continuous"] not in (0, 1):
        raise cdc_error(22998)
    settings = JobSettings(
        values["maxtrans"], values["maxscans"], bool(values["continuous"]), values["pollinginterval"]
    )
    check_scan_settings(settings)
    run = sql_of(call)
    with contextlib.closing(_open_capture(call, database)) as capture, _failures_told(run, database):
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
def _failures_told(run: Run, database: CdcDatabase) -> Iterator[None]:
    """What goes wrong at the log is in sys.dm_cdc_errors, and an error of the caller's."""
    try:
        yield
    except psycopg.Error as error:
        failures = scan_failures(error)
        with connect(server_conninfo(run)) as connection:
            record_errors(runner(connection), database.database_id, failures)
        raise failures[-1] from error


def _scan_once(capture: Capture, maxtrans: int) -> bool:
    """Whether the log is drained. Raises what a capture job would leave in sys.dm_cdc_errors."""
    try:
        return capture.scan(maxtrans).drained
    except psycopg.Error as error:
        raise scan_failures(error)[-1] from error


def _open_capture(call: ProcedureCall, database: CdcDatabase) -> Capture:
    """Raises 22903 while another reader is at the log; a job that was just stopped is given the time to end."""
    run = sql_of(call)
    deadline = time.monotonic() + _STOPPING_SECONDS
    while True:
        try:
            return Capture(server_conninfo(run), database.database_id)
        except LogReaderError as error:
            if not error.busy:
                raise
        if is_requested(run, database.database_id) or time.monotonic() > deadline:
            break
        run("SELECT pg_sleep($1::float8)", (_RETRY_SECONDS,))
    readers = run("SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1::text::name", (database.slot,))
    raise cdc_error(22903, readers[0][0] if readers else 0)


def _cleanup(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    run, name = sql_of(call), call.engine.database
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


_CHANGE_PARAMETERS = (
    Parameter("@maxtrans", INT, None), Parameter("@maxscans", INT, None), Parameter("@continuous", BIT, None),
    Parameter("@pollinginterval", BIGINT, None), Parameter("@retention", BIGINT, None),
    Parameter("@threshold", BIGINT, None),
)  # fmt: skip

JOB_PROCEDURES = (
    SystemProcedure(
        "sp_cdc_add_job",
        (
            Parameter("@job_type", _JOB_TYPE), Parameter("@start_job", BIT, True),
            Parameter("@maxtrans", INT, DEFAULT_MAXTRANS), Parameter("@maxscans", INT, DEFAULT_MAXSCANS),
            Parameter("@continuous", BIT, True), Parameter("@pollinginterval", BIGINT, DEFAULT_POLLING_INTERVAL),
            Parameter("@retention", BIGINT, DEFAULT_RETENTION), Parameter("@threshold", BIGINT, DEFAULT_THRESHOLD),
        ),
        _add_job,
    ),
    SystemProcedure(
        "sp_cdc_change_job", (Parameter("@job_type", _JOB_TYPE, CAPTURE), *_CHANGE_PARAMETERS), _change_job
    ),
    SystemProcedure("sp_cdc_drop_job", (Parameter("@job_type", _JOB_TYPE),), _drop_job),
    SystemProcedure("sp_cdc_start_job", (Parameter("@job_type", _JOB_TYPE, CAPTURE),), _start_job),
    SystemProcedure("sp_cdc_stop_job", (Parameter("@job_type", _JOB_TYPE, CAPTURE),), _stop_job),
    SystemProcedure("sp_cdc_help_jobs", (), _help_jobs),
    SystemProcedure(
        "sp_cdc_scan",
        (
            Parameter("@maxtrans", INT, DEFAULT_MAXTRANS), Parameter("@maxscans", INT, DEFAULT_MAXSCANS),
            Parameter("@continuous", TsqlType("tinyint"), 0), Parameter("@pollinginterval", BIGINT, 0),
        ),
        _scan,
    ),
    SystemProcedure(
        "sp_cdc_cleanup_change_table",
        (
            Parameter("@capture_instance", SYSNAME), Parameter("@low_water_mark", LSN),
            Parameter("@threshold", BIGINT, DEFAULT_THRESHOLD), Parameter("@fCleanupFailed", BIT, False, output=True),
        ),
        _cleanup,
    ),
)  # fmt: skip
