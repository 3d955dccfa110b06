"""``sp_cdc_add_job``, ``change``, ``drop``, ``start``, ``stop``, ``help_jobs`` (docs/reference/sqlserver_cdc.md, "Job
procedures")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import UUID

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
    check_settings,
    drop_job,
    find_job,
    list_jobs,
    request_start,
    request_stop,
)
from sqlserver_emulator.cdc.messages import AgentError, cdc_error
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.procedures.results import (
    ResultColumn,
    int_argument,
    printed,
    require_cdc,
    require_owner,
    result_set,
    sql_of,
    text_argument,
)
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import ErrorRaised, Event, StatementDone
from sqlserver_emulator.types import BIGINT, BIT, INT, TsqlType

_JOB_TYPE = TsqlType("nvarchar", 20)
_HELP_COLUMNS: tuple[ResultColumn, ...] = (
    ("job_id", TsqlType("uniqueidentifier")),
    ("job_type", _JOB_TYPE),
    ("maxtrans", INT),
    ("maxscans", INT),
    ("continuous", BIT),
    ("pollinginterval", BIGINT),
    ("retention", BIGINT),
    ("threshold", BIGINT),
)
_SETTINGS = ("maxtrans", "maxscans", "continuous", "pollinginterval", "retention", "threshold")
_CAPTURE_SETTINGS = frozenset(_SETTINGS[:4])


def _job_type(call: ProcedureCall) -> str:
    """Return the job type that the caller names. Raises 22992."""
    kind = text_argument(call, "@job_type")
    if kind is None or kind.lower() not in (CAPTURE, CLEANUP):
        raise cdc_error(22992, "NULL" if kind is None else kind)
    return kind.lower()


def _own_job(call: ProcedureCall, database: CdcDatabase) -> Job:
    """Return the job that the caller names. Raises 22997."""
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
        # The default of five seconds would be refused with 22999.
        settings = replace(settings, pollinginterval=0)
    check_settings(kind, settings)
    with call.engine.atomic():
        job = add_job(run, database.database_id, database.name, kind, settings)
    if call.arguments["@start_job"]:
        yield from ask_agent(call, job, request_start)


def _change_job(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    database = require_cdc(call)
    job = _own_job(call, database)
    given = _given(call)
    if job.job_type == CAPTURE and given.keys() - _CAPTURE_SETTINGS:
        raise cdc_error(22995)
    if job.job_type == CLEANUP and given.keys() & _CAPTURE_SETTINGS:
        raise cdc_error(22996)
    # One of the two settles the other: a job that polls is continuous, and of one that shall not be, an interval is
    # ignored.
    if given.get("continuous") == 0:
        given["pollinginterval"] = 0
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
    yield from ask_agent(call, job, request_start)


def _stop_job(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    job = _own_job(call, require_cdc(call))
    yield from ask_agent(call, job, request_stop)


def ask_agent(call: ProcedureCall, job: Job, request: Callable[[Run, Job, str], str]) -> Iterator[Event]:
    """Pass a request to the Agent, which is no part of the engine: no CATCH sees its refusal, only the client does."""
    try:
        yield printed(request(sql_of(call), job, call.engine.login))
    except AgentError as refusal:
        # docs/reference/sqlserver_cdc.md, "Job procedures": 22022 is the Agent's, and TRY…CATCH does not catch it.
        call.return_code = 1
        yield ErrorRaised(refusal)
        yield StatementDone(failed=True)


def _help_jobs(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    database = require_cdc(call)
    rows = [
        (
            UUID(job.job_id),
            job.job_type,
            job.settings.maxtrans,
            job.settings.maxscans,
            job.settings.continuous,
            job.settings.pollinginterval,
            job.settings.retention,
            job.settings.threshold,
        )
        for job in list_jobs(sql_of(call), database.database_id)
    ]
    yield from result_set(_HELP_COLUMNS, rows)


_CHANGE_PARAMETERS = (
    Parameter("@maxtrans", INT, None),
    Parameter("@maxscans", INT, None),
    Parameter("@continuous", BIT, None),
    Parameter("@pollinginterval", BIGINT, None),
    Parameter("@retention", BIGINT, None),
    Parameter("@threshold", BIGINT, None),
)

JOB_PROCEDURES = (
    SystemProcedure(
        "sp_cdc_add_job",
        (
            Parameter("@job_type", _JOB_TYPE),
            Parameter("@start_job", BIT, True),
            Parameter("@maxtrans", INT, DEFAULT_MAXTRANS),
            Parameter("@maxscans", INT, DEFAULT_MAXSCANS),
            Parameter("@continuous", BIT, True),
            Parameter("@pollinginterval", BIGINT, DEFAULT_POLLING_INTERVAL),
            Parameter("@retention", BIGINT, DEFAULT_RETENTION),
            Parameter("@threshold", BIGINT, DEFAULT_THRESHOLD),
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
)
