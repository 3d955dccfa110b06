"""``sp_help_job``, ``sp_help_jobactivity`` and ``sp_help_jobhistory`` of msdb (docs/reference/sqlserver_cdc.md, "Job
history"): queries on the views of ``sql/msdb.sql``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from sqlserver_emulator.cdc.procedures.agent_jobs import check_caller, named_job
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure, Variable
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Event, ResultStart, StatementDone
from sqlserver_emulator.types import DATETIME, INT, SYSNAME, TsqlType

_UNIQUEIDENTIFIER: Final = TsqlType("uniqueidentifier")
_JOB_PARAMETERS: Final = (Parameter("@job_id", _UNIQUEIDENTIFIER, None), Parameter("@job_name", SYSNAME, None))
_ASPECTS: Final = ("ALL", "JOB", "SCHEDULES", "STEPS", "TARGETS")


def _select(call: ProcedureCall, parameters: tuple[Parameter, ...], query: str, job_id: str | None) -> Iterator[Event]:
    """Yield the result of a SELECT over msdb, which has the call's arguments and ``@id`` as its variables."""
    variables = {p.name: Variable(p.type, call.arguments[p.name]) for p in parameters}
    variables["@id"] = Variable(_UNIQUEIDENTIFIER, None if job_id is None else UUID(job_id))
    result = call.engine.execute(query, variables)
    yield ResultStart(result.columns or ())
    yield from result.batches
    yield StatementDone(result.command, row_count=result.row_count)


def _help_job(call: ProcedureCall) -> Iterator[Event]:
    check_caller(call, "sp_help_job")
    job_id = named_job(call, is_needed=False)
    aspect = str(call.arguments["@job_aspect"] or "ALL").upper()
    filters = [call.arguments[p.name] for p in _HELP_JOB[3:]]
    if job_id is not None and any(value is not None for value in filters):
        message = "Supply either a job name (and job aspect), or one or more job filter parameters."
        raise SqlServerError(14280, message)
    _check_one_of("@job_aspect", aspect, _ASPECTS)
    dates = [call.arguments[name] for name in ("@date_created", "@date_last_modified")]
    if any(date is not None for date in dates) != (call.arguments["@date_comparator"] is not None):
        message = "Supply either a date (created or last modified) and a data comparator, or no date parameters at all."
        raise SqlServerError(14282, message)
    results = (("JOB", _JOBS), ("STEPS", _STEPS), ("SCHEDULES", _SCHEDULES), ("TARGETS", _TARGETS))
    for name, query in results if job_id is not None else results[:1]:
        if job_id is None or aspect in ("ALL", name):
            yield from _select(call, _HELP_JOB, query, job_id)


def _help_jobactivity(call: ProcedureCall) -> Iterator[Event]:
    check_caller(call, "sp_help_jobactivity")
    job_id = named_job(call, is_needed=False)
    yield from _select(call, _HELP_JOBACTIVITY, _ACTIVITY, job_id)


def _help_jobhistory(call: ProcedureCall) -> Iterator[Event]:
    check_caller(call, "sp_help_jobhistory")
    job_id = named_job(call, is_needed=False)
    mode = str(call.arguments["@mode"] or "SUMMARY").upper()
    _check_one_of("@mode", mode, ("FULL", "SUMMARY"))
    columns = _FULL if mode == "FULL" else _SUMMARY
    order = "" if call.arguments["@oldest_first"] else " DESC"
    yield from _select(call, _HELP_JOBHISTORY, f"SELECT {columns} {_HISTORY} ORDER BY h.instance_id{order}", job_id)


def _check_one_of(name: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise SqlServerError(14266, f"The specified '{name}' is invalid (valid values are: {', '.join(valid)}).")


_HELP_JOB: Final = (
    *_JOB_PARAMETERS,
    Parameter("@job_aspect", TsqlType("varchar", 9), None),
    Parameter("@job_type", TsqlType("varchar", 12), None),
    Parameter("@owner_login_name", SYSNAME, None),
    Parameter("@subsystem", TsqlType("nvarchar", 40), None),
    Parameter("@category_name", SYSNAME, None),
    Parameter("@enabled", TsqlType("tinyint"), None),
    Parameter("@execution_status", INT, None),
    Parameter("@date_comparator", TsqlType("char", 1), None),
    Parameter("@date_created", DATETIME, None),
    Parameter("@date_last_modified", DATETIME, None),
    Parameter("@description", TsqlType("nvarchar", 512), None),
)
_HELP_JOBACTIVITY: Final = (*_JOB_PARAMETERS, Parameter("@session_id", INT, None))
_HELP_JOBHISTORY: Final = (
    *_JOB_PARAMETERS,
    *(
        Parameter(name, INT, None)
        for name in (
            "@step_id",
            "@sql_message_id",
            "@sql_severity",
            "@start_run_date",
            "@end_run_date",
            "@start_run_time",
            "@end_run_time",
            "@minimum_run_duration",
            "@run_status",
            "@minimum_retries",
        )
    ),
    Parameter("@oldest_first", INT, 0),
    Parameter("@server", SYSNAME, None),
    Parameter("@mode", TsqlType("varchar", 7), "SUMMARY"),
)

_JOBS: Final = """
SELECT j.job_id, CAST(SERVERPROPERTY('ServerName') AS nvarchar(30)) AS originating_server, j.name, j.enabled,
    j.description, j.start_step_id, c.name AS category, CAST(N'sa' AS sysname) AS owner,
    j.notify_level_eventlog, j.notify_level_email, j.notify_level_netsend, j.notify_level_page,
    CAST(N'(unknown)' AS sysname) AS notify_email_operator,
    CAST(N'(unknown)' AS sysname) AS notify_netsend_operator, CAST(N'(unknown)' AS sysname) AS notify_page_operator,
    j.delete_level, j.date_created, j.date_modified, j.version_number, v.last_run_date, v.last_run_time,
    CAST(v.last_run_outcome AS int) AS last_run_outcome, s.next_run_date, s.next_run_time,
    CASE WHEN s.next_run_date > 0 THEN s.schedule_id ELSE 0 END AS next_run_schedule_id,
    r.status AS current_execution_status,
    CAST(CASE r.status WHEN 1 THEN (SELECT CONCAT(p.step_id, N' (', p.step_name, N')') FROM msdb.dbo.sysjobsteps p
        WHERE p.job_id = j.job_id AND p.on_success_action = 1) ELSE N'0 (unknown)' END AS sysname)
        AS current_execution_step,
    CASE r.status WHEN 1 THEN (SELECT COUNT(*) FROM msdb.dbo.sysjobhistory h WHERE h.job_id = j.job_id
        AND h.run_status = 2 AND h.instance_id > ISNULL((SELECT MAX(o.instance_id) FROM msdb.dbo.sysjobhistory o
            WHERE o.job_id = j.job_id AND o.step_id = 0), 0)) ELSE 0 END AS current_retry_attempt,
    (SELECT COUNT(*) FROM msdb.dbo.sysjobsteps p WHERE p.job_id = j.job_id) AS has_step, 1 AS has_schedule,
    1 AS has_target, 1 AS type
FROM msdb.dbo.sysjobs j JOIN msdb.dbo.syscategories c ON c.category_id = j.category_id
JOIN msdb.dbo.sysjobservers v ON v.job_id = j.job_id JOIN msdb.dbo.sysjobschedules s ON s.job_id = j.job_id
LEFT JOIN msdb.dbo.sysjobactivity a ON a.job_id = j.job_id
CROSS APPLY (SELECT CASE WHEN a.start_execution_date IS NOT NULL AND a.stop_execution_date IS NULL THEN 1 ELSE 4 END
    AS status) r
WHERE (@id IS NULL OR j.job_id = @id) AND ISNULL(@job_type, 'LOCAL') = 'LOCAL'
    AND ISNULL(@owner_login_name, N'sa') = N'sa' AND ISNULL(@subsystem, N'TSQL') = N'TSQL'
    AND (@category_name IS NULL OR c.name = @category_name) AND (@enabled IS NULL OR j.enabled = @enabled)
    AND (@description IS NULL OR j.description LIKE @description)
    AND (@execution_status IS NULL OR @execution_status = r.status OR (@execution_status = 0 AND r.status = 1))
    AND (@date_created IS NULL OR (@date_comparator = '=' AND j.date_created = @date_created)
        OR (@date_comparator = '<' AND j.date_created < @date_created)
        OR (@date_comparator = '>' AND j.date_created > @date_created))
    AND (@date_last_modified IS NULL OR (@date_comparator = '=' AND j.date_modified = @date_last_modified)
        OR (@date_comparator = '<' AND j.date_modified < @date_last_modified)
        OR (@date_comparator = '>' AND j.date_modified > @date_last_modified))
ORDER BY j.name
"""
_STEPS: Final = """
SELECT p.step_id, p.step_name, p.subsystem, CAST(p.command AS nvarchar(3200)) AS command,
    CAST(N'4' AS nvarchar(4000)) AS flags, p.cmdexec_success_code,
    CAST(CASE p.on_success_action WHEN 1 THEN N'1 (quit with success)' ELSE N'3 (goto next step)' END AS nvarchar(4000))
        AS on_success_action, p.on_success_step_id,
    CAST(CASE p.on_fail_action WHEN 2 THEN N'2 (quit with failure)' ELSE N'3 (goto next step)' END AS nvarchar(4000))
        AS on_fail_action, p.on_fail_step_id, p.server, p.database_name, p.database_user_name, p.retry_attempts,
    p.retry_interval, CAST('0 (normal)' AS varchar(4000)) AS os_run_priority,
    CAST(p.output_file_name AS varchar(200)) AS output_file_name, p.last_run_outcome, p.last_run_duration,
    p.last_run_retries, p.last_run_date, p.last_run_time, p.proxy_id
FROM msdb.dbo.sysjobsteps p WHERE p.job_id = @id ORDER BY p.step_id
"""
_SCHEDULES: Final = """
SELECT s.schedule_id, s.name AS schedule_name, s.enabled, s.freq_type, s.freq_interval, s.freq_subday_type,
    s.freq_subday_interval, s.freq_relative_interval, s.freq_recurrence_factor, s.active_start_date, s.active_end_date,
    s.active_start_time, s.active_end_time, s.date_created, CAST(NULL AS nvarchar(4000)) AS schedule_description,
    j.next_run_date, j.next_run_time, s.schedule_uid, 1 AS job_count
FROM msdb.dbo.sysjobschedules j JOIN msdb.dbo.sysschedules s ON s.schedule_id = j.schedule_id WHERE j.job_id = @id
"""
_TARGETS: Final = """
SELECT v.server_id, CAST(SERVERPROPERTY('ServerName') AS nvarchar(30)) AS server_name,
    CAST(NULL AS datetime) AS enlist_date, CAST(NULL AS datetime) AS last_poll_date,
    v.last_run_date, v.last_run_time, v.last_run_duration, v.last_run_outcome, v.last_outcome_message
FROM msdb.dbo.sysjobservers v WHERE v.job_id = @id
"""
_ACTIVITY: Final = """
SELECT a.session_id, a.job_id, j.name AS job_name, a.run_requested_date, a.run_requested_source, a.queued_date,
    a.start_execution_date, a.last_executed_step_id, a.last_executed_step_date AS last_exectued_step_date,
    a.stop_execution_date, a.next_scheduled_run_date, a.job_history_id, h.message, h.run_status, h.operator_id_emailed,
    h.operator_id_netsent, h.operator_id_paged
FROM msdb.dbo.sysjobactivity a JOIN msdb.dbo.sysjobs j ON j.job_id = a.job_id
LEFT JOIN msdb.dbo.sysjobhistory h ON h.instance_id = a.job_history_id
WHERE a.session_id = ISNULL(@session_id, (SELECT MAX(session_id) FROM msdb.dbo.syssessions))
    AND (@id IS NULL OR a.job_id = @id)
"""
_OPERATORS: Final = ", ".join(f"CAST(NULL AS nvarchar(20)) AS operator_{by}" for by in ("emailed", "netsent", "paged"))
_SUMMARY: Final = f"""
j.name AS job_name, h.run_status, h.run_date, h.run_time, h.run_duration, {_OPERATORS}, h.retries_attempted, h.server
"""
_FULL: Final = f"""
h.instance_id, h.job_id, j.name AS job_name, h.step_id, h.step_name, h.sql_message_id, h.sql_severity, h.message,
h.run_status, h.run_date, h.run_time, h.run_duration, {_OPERATORS}, h.retries_attempted, h.server
"""
_HISTORY: Final = """
FROM msdb.dbo.sysjobhistory h JOIN msdb.dbo.sysjobs j ON j.job_id = h.job_id
WHERE (@id IS NULL OR h.job_id = @id) AND (@step_id IS NULL OR h.step_id = @step_id)
    AND (@sql_message_id IS NULL OR h.sql_message_id = @sql_message_id)
    AND (@sql_severity IS NULL OR h.sql_severity = @sql_severity)
    AND (@start_run_date IS NULL OR h.run_date >= @start_run_date)
    AND (@end_run_date IS NULL OR h.run_date <= @end_run_date)
    AND (@start_run_time IS NULL OR h.run_time >= @start_run_time)
    AND (@end_run_time IS NULL OR h.run_time <= @end_run_time)
    AND (@minimum_run_duration IS NULL OR h.run_duration >= @minimum_run_duration)
    AND (@run_status IS NULL OR h.run_status = @run_status)
    AND (@minimum_retries IS NULL OR h.retries_attempted >= @minimum_retries)
    AND (@server IS NULL OR h.server = @server)
"""

AGENT_REPORTS: Final = (
    SystemProcedure("sp_help_job", _HELP_JOB, _help_job),
    SystemProcedure("sp_help_jobactivity", _HELP_JOBACTIVITY, _help_jobactivity),
    SystemProcedure("sp_help_jobhistory", _HELP_JOBHISTORY, _help_jobhistory),
)
