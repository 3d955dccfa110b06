"""``sp_cdc_enable_db``, ``sp_cdc_disable_db``, ``sp_cdc_enable_table``, ``sp_cdc_disable_table``.

Owns arguments, rights, the order of checks, messages (docs/reference/sqlserver_cdc.md, "Enabling a database" to
"Disabling a table"). The work is in ``enable_database``, ``enable_table`` and ``disable``.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlserver_emulator.cdc.enabling.disable import disable_database, drop_instances
from sqlserver_emulator.cdc.enabling.enable_database import database_id_of, enable_database, find_database
from sqlserver_emulator.cdc.enabling.enable_table import (
    InstanceRequest,
    create_instance,
    is_cdc_table,
    lock_instances,
    plan_instance,
)
from sqlserver_emulator.cdc.enabling.source import SourceTable, find_table
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.jobs import (
    AGENT_STOPPED,
    CAPTURE,
    CLEANUP,
    DEFAULTS,
    add_job,
    find_job,
    is_agent_running,
    request_start,
)
from sqlserver_emulator.cdc.messages import cdc_error, cdc_warning
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.procedures.results import (
    inner_procedure,
    printed,
    quoted_failure,
    require_cdc,
    require_owner,
    required_text,
    sql_of,
    text_argument,
)
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.engine.names import bracketed
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import BIT, NVARCHAR_MAX, SYSNAME

_LOCK_RESULTS = {1222: -1, 1205: -3}
"""The results of an application lock that was not granted in time, or whose waiter was a deadlock's victim."""
_SET_TRACKED, _CLEAR_TRACKED = "SetCDCTracked(Value = 1)", "SetCDCTracked(Value = 0)"
_AGENT_CALLS_OF_FIRST_TABLE = 4
"""Two jobs are added and two started, and each call reports that there is no agent."""


def _enable_db(call: ProcedureCall) -> Iterator[Event]:
    if not call.engine.caller_is("sysadmin"):
        raise cdc_error(22902, "Sysadmin")
    run, database = sql_of(call), call.engine.database
    if find_database(run, database) is not None:
        yield cdc_warning(22905, database)
        return
    with (
        inner_procedure("sp_cdc_enable_db_internal"),
        quoted_failure(22830, database, _SET_TRACKED),
        call.engine.atomic(),
    ):
        enable_database(run, database)
    call.engine.catalog_changed()


def _disable_db(call: ProcedureCall) -> Iterator[Event]:
    if not call.engine.caller_is("sysadmin"):
        raise cdc_error(22902, "Sysadmin")
    run = sql_of(call)
    database = find_database(run, call.engine.database)
    if database is None:
        yield cdc_warning(22901, call.engine.database)
        return
    with (
        inner_procedure("sp_cdc_disable_db_internal"),
        quoted_failure(22831, database.name, _CLEAR_TRACKED),
        call.engine.atomic(),
    ):
        _lock_metadata(run, database)
        disable_database(run, database)
    call.engine.catalog_changed()


def _enable_table(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    database = require_cdc(call)
    run = sql_of(call)
    # docs/reference/sqlserver_cdc.md, "Enabling a table".
    if call.arguments["@enable_extended_ddl_handling"]:
        raise cdc_error(22874)
    with (
        inner_procedure("sp_cdc_enable_table_internal"),
        quoted_failure(22832, _named_table(call), _SET_TRACKED),
        call.engine.atomic(),
    ):
        request = _request(call)
        _lock_metadata(run, database)
        table = _source_table(call)
        # The table was read under the lock, so that no other session has changed its instances since.
        plan = plan_instance(run, database, table, request)
        _make_role(call, plan.role_name)
        create_instance(run, database, table, plan)
        has_jobs = find_job(run, database.database_id, CAPTURE) is not None
        messages = [] if has_jobs else _make_jobs(run, database, call.engine.login)
    call.engine.catalog_changed()
    if not request.allow_partition_switch:
        yield cdc_warning(22857)
    if plan.supports_net_changes and not run("SELECT emulator_cdc.evaluates_masks()", ())[0][0]:
        yield cdc_warning(22969)
    yield from (printed(text) for text in messages)


def _lock_metadata(run: Run, database: CdcDatabase) -> None:
    """Lock the database's instances against other changes. Raises 22840 when the caller's lock timeout has passed."""
    try:
        lock_instances(run, database.database_id)
    except SqlServerError as error:
        if error.number not in _LOCK_RESULTS:
            raise
        raise cdc_error(22840, f"cdc_{database.name}", _LOCK_RESULTS[error.number]) from error


def _request(call: ProcedureCall) -> InstanceRequest:
    arguments = call.arguments
    role = text_argument(call, "@role_name")
    if role == "":
        raise cdc_error(22907)
    if role is not None and "\\" in role:
        raise cdc_error(22938, role)
    net, switch = arguments["@supports_net_changes"], arguments["@allow_partition_switch"]
    return InstanceRequest(
        capture_instance=text_argument(call, "@capture_instance"),
        supports_net_changes=None if net is None else bool(net),
        role_name=role,
        index_name=text_argument(call, "@index_name"),
        captured_column_list=text_argument(call, "@captured_column_list"),
        filegroup_name=text_argument(call, "@filegroup_name"),
        allow_partition_switch=switch is None or bool(switch),
    )


def _named_table(call: ProcedureCall) -> str:
    """Return the table that the call names, as CDC's errors quote it."""
    names = (text_argument(call, name) or "" for name in ("@source_schema", "@source_name"))
    return ".".join(bracketed(name) for name in names)


def _source_table(call: ProcedureCall) -> SourceTable:
    """Return the table that the call names. Raises 22963, 22974, 22931."""
    schema, name = required_text(call, "@source_schema"), required_text(call, "@source_name")
    if is_cdc_table(schema):
        raise cdc_error(22974)
    table = find_table(sql_of(call), call.engine.database, schema, name)
    if table is None:
        raise cdc_error(22931, schema, name)
    return table


def _make_role(call: ProcedureCall, role: str | None) -> None:
    if role is None:
        return
    taken = sql_of(call)(
        "SELECT 1 FROM emulator.principals WHERE database_id = $1::int AND lower(name) = lower($2::varchar)",
        (database_id_of(sql_of(call), call.engine.database), role),
    )
    if not taken:
        call.engine.execute(f"CREATE ROLE {bracketed(role)}", {})


def _make_jobs(run: Run, database: CdcDatabase, login: str) -> list[str]:
    """Add both jobs for the first table of a database, and start them. Return the lines to print."""
    jobs = [
        add_job(run, database.database_id, database.name, kind, DEFAULTS[kind])
        for kind in (CAPTURE, CLEANUP)
        if find_job(run, database.database_id, kind) is None
    ]
    # docs/reference/sqlserver_cdc.md, "Enabling a table": with the Agent stopped, one line comes four times and the
    # call succeeds.
    if not is_agent_running(run):
        return [AGENT_STOPPED] * _AGENT_CALLS_OF_FIRST_TABLE
    return [request_start(run, job, login) for job in jobs]


def _disable_table(call: ProcedureCall) -> Iterator[Event]:
    require_owner(call)
    database = require_cdc(call)
    run = sql_of(call)
    instance = required_text(call, "@capture_instance")
    with (
        inner_procedure("sp_cdc_disable_table_internal"),
        quoted_failure(22833, _named_table(call), _CLEAR_TRACKED),
        call.engine.atomic(),
    ):
        _lock_metadata(run, database)
        table = _source_table(call)
        if not table.is_tracked:
            raise cdc_error(22985, table.schema, table.name)
        only = None if instance.lower() == "all" else instance
        if not drop_instances(run, database, table.object_id, only):
            raise cdc_error(22960, instance, table.schema, table.name)
    call.engine.catalog_changed()
    yield from ()


TABLE_PROCEDURES = (
    SystemProcedure("sp_cdc_enable_db", (), _enable_db),
    SystemProcedure("sp_cdc_disable_db", (), _disable_db),
    SystemProcedure(
        "sp_cdc_enable_table",
        (
            Parameter("@source_schema", SYSNAME),
            Parameter("@source_name", SYSNAME),
            Parameter("@capture_instance", SYSNAME, None),
            Parameter("@supports_net_changes", BIT, None),
            Parameter("@role_name", SYSNAME),
            Parameter("@index_name", SYSNAME, None),
            Parameter("@captured_column_list", NVARCHAR_MAX, None),
            Parameter("@filegroup_name", SYSNAME, None),
            Parameter("@allow_partition_switch", BIT, True),
            Parameter("@enable_extended_ddl_handling", BIT, False),
        ),
        _enable_table,
    ),
    SystemProcedure(
        "sp_cdc_disable_table",
        (
            Parameter("@source_schema", SYSNAME),
            Parameter("@source_name", SYSNAME),
            Parameter("@capture_instance", SYSNAME),
        ),
        _disable_table,
    ),
)
