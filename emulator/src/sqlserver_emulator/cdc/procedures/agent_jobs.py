"""``sp_start_job`` and ``sp_stop_job`` of msdb, and what the procedures of SQL Server Agent share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlserver_emulator.cdc.jobs import Job, list_jobs, request_start, request_stop
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.procedures.job_procedures import ask_agent
from sqlserver_emulator.cdc.procedures.results import sql_of, text_argument
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import INT, SYSNAME, TsqlType

_DATABASE: Final = "msdb"


def check_caller(call: ProcedureCall, procedure: str) -> None:
    """Raise 2812 outside of msdb, and 229 for logins that are not sysadmin."""
    if call.engine.database.lower() != _DATABASE:
        raise SqlServerError(2812, f"Could not find stored procedure '{procedure}'.", state=62)
    if not call.engine.caller_is("sysadmin"):
        message = f"The EXECUTE permission was denied on the object '{procedure}', database 'msdb', schema 'dbo'."
        raise SqlServerError(229, message, severity=14, state=5)


def named_job(call: ProcedureCall, *, is_needed: bool = True) -> str | None:
    """Return the id of the job that ``@job_id`` or ``@job_name`` names. Raises 14294 and 14262."""
    job_id, name = text_argument(call, "@job_id"), text_argument(call, "@job_name")
    if (job_id is not None and name is not None) or (is_needed and job_id is None and name is None):
        raise SqlServerError(14294, "Supply either @job_id or @job_name to identify the job.")
    if job_id is None and name is None:
        return None
    for job in list_jobs(sql_of(call)):
        if job.job_id == (job_id or "").lower() or (name is not None and job.name.lower() == name.lower()):
            return job.job_id
    parameter, value = ("@job_name", name) if name is not None else ("@job_id", job_id)
    raise SqlServerError(14262, f"The specified {parameter} ('{value}') does not exist.")


def _request(name: str, request: Callable[[Run, Job, str], str]) -> Callable[[ProcedureCall], Iterator[Event]]:
    def run(call: ProcedureCall) -> Iterator[Event]:
        check_caller(call, name)
        for parameter in ("@server_name", "@step_name", "@originating_server"):
            if call.arguments.get(parameter) is not None:
                raise NotSupportedByEmulatorError(f"{name} with {parameter}")
        job_id = named_job(call)
        (job,) = (job for job in list_jobs(sql_of(call)) if job.job_id == job_id)
        yield from ask_agent(call, job, request)

    return run


_JOB: Final = (Parameter("@job_name", SYSNAME, None), Parameter("@job_id", TsqlType("uniqueidentifier"), None))
AGENT_JOBS: Final = (
    SystemProcedure(
        "sp_start_job",
        (
            *_JOB,
            Parameter("@error_flag", INT, 1),
            Parameter("@server_name", SYSNAME, None),
            Parameter("@step_name", SYSNAME, None),
            Parameter("@output_flag", INT, 1),
        ),
        _request("sp_start_job", request_start),
    ),
    SystemProcedure(
        "sp_stop_job",
        (*_JOB, Parameter("@originating_server", SYSNAME, None), Parameter("@server_name", SYSNAME, None)),
        _request("sp_stop_job", request_stop),
    ),
)
