"""SQL Server Agent's history of the capture and cleanup jobs, as a DBA queries it in msdb."""

from __future__ import annotations

from datetime import datetime

import pymssql
import pytest

from cdc_database import CdcDatabase, Row, wait_until
from emulator_process import Emulator

_CAPTURE_STEP = "Change Data Capture Collection Agent"
_CLEANUP_STEP = "Change Data Capture Cleanup Agent"


def history(shop: CdcDatabase, job: str, condition: str = "1 = 1") -> list[Row]:
    """Rows of the job, oldest first."""
    return shop.query(
        "SELECT h.* FROM msdb.dbo.sysjobhistory h JOIN msdb.dbo.sysjobs j ON j.job_id = h.job_id"
        f" WHERE j.name = N'cdc.{shop.name}_{job}' AND {condition} ORDER BY h.instance_id"
    )


def outcomes(shop: CdcDatabase, job: str) -> list[tuple[int, int]]:
    return [(row["step_id"], row["run_status"]) for row in history(shop, job)]


def results(shop: CdcDatabase, batch: str) -> list[list[Row]]:
    """Every result set of a batch."""
    found = []
    with shop.connection.cursor(as_dict=True) as cursor:
        cursor.execute(batch)
        while True:
            found.append(list(cursor.fetchall()))
            if not cursor.nextset():
                return found


def running(shop: CdcDatabase) -> bool:
    return outcomes(shop, "capture")[-1:] == [(1, 1)]


def test_run_of_the_capture_job_that_is_stopped_is_cancelled(shop: CdcDatabase) -> None:
    wait_until(lambda: running(shop))
    shop.run("EXEC sys.sp_cdc_stop_job")
    wait_until(lambda: outcomes(shop, "capture") == [(1, 1), (2, 3), (0, 3)])
    begun, step, outcome = history(shop, "capture")
    assert begun["step_name"] == f"Starting {_CAPTURE_STEP}"
    assert (begun["sql_message_id"], begun["sql_severity"]) == (22801, 10)
    assert begun["message"] == (
        "Executed as user: sqlserver_emulator. Starting the Change Data Capture Collection Agent job. To report on the"
        " progress of the operation, query the sys.dm_cdc_log_scan_sessions dynamic management view."
        " [SQLSTATE 01000] (Message 22801).  The step succeeded."
    )
    assert step["message"] == (
        "Executed as user: sqlserver_emulator. The step was cancelled (stopped) as the result of a stop job request."
    )
    assert outcome["step_name"] == "(Job outcome)"
    assert outcome["message"] == (
        "The job was stopped prior to completion by User sa.  The Job was invoked by User sa."
        f"  The last step to run was step 2 ({_CAPTURE_STEP})."
    )
    (activity,) = shop.query(
        "SELECT a.* FROM msdb.dbo.sysjobactivity a JOIN msdb.dbo.sysjobs j ON j.job_id = a.job_id"
        f" WHERE j.name = N'cdc.{shop.name}_capture'"
        " AND a.session_id = (SELECT MAX(session_id) FROM msdb.dbo.syssessions)"
    )
    assert (activity["run_requested_source"], activity["last_executed_step_id"]) == ("4", 2)
    assert activity["job_history_id"] == outcome["instance_id"]
    began = datetime.strptime(f"{outcome['run_date']}{outcome['run_time']:06}", "%Y%m%d%H%M%S")
    assert began == activity["start_execution_date"].replace(microsecond=0)
    moment = shop.scalar(f"msdb.dbo.agent_datetime({outcome['run_date']}, {outcome['run_time']})")
    assert moment == began
    assert shop.scalar("msdb.dbo.agent_datetime(NULL, 5)") is None


def test_time_that_a_run_took_is_hours_minutes_and_seconds(shop: CdcDatabase) -> None:
    wait_until(lambda: running(shop))
    shop.run("EXEC emulator.advance_clock @seconds = 93784", "EXEC sys.sp_cdc_stop_job")
    wait_until(lambda: len(outcomes(shop, "capture")) == 3)
    durations = [row["run_duration"] for row in history(shop, "capture", "h.step_id <> 1")]
    assert all(260304 <= duration < 260350 for duration in durations)


def test_job_that_is_not_continuous_succeeds(shop: CdcDatabase) -> None:
    wait_until(lambda: running(shop))
    shop.run("EXEC sys.sp_cdc_change_job @continuous = 0", "EXEC sys.sp_cdc_stop_job")
    wait_until(lambda: len(outcomes(shop, "capture")) == 3)
    shop.run(f"EXEC msdb.dbo.sp_start_job N'cdc.{shop.name}_capture'")
    wait_until(lambda: outcomes(shop, "capture")[3:] == [(1, 1), (2, 1), (0, 1)])
    assert history(shop, "capture")[-1]["message"].startswith("The job succeeded.  The Job was invoked by User sa.")
    assert history(shop, "capture")[-2]["message"] == "Executed as user: sqlserver_emulator. The step succeeded."


def test_failed_capture_says_why(shop: CdcDatabase) -> None:
    wait_until(lambda: running(shop))
    shop.run("EXEC emulator.fail_capture @message = N'The log is on fire.'")
    wait_until(lambda: outcomes(shop, "capture") == [(1, 1), (2, 0), (0, 0)])
    _, step, outcome = history(shop, "capture")
    assert (step["sql_message_id"], step["sql_severity"]) == (22859, 16)
    assert step["message"].endswith("The log is on fire. [SQLSTATE 42000] (Error 22859).  The step failed.")
    assert outcome["message"].startswith("The job failed.  The Job was invoked by User sa.  The last step to run was")
    (server,) = shop.query(
        "SELECT s.* FROM msdb.dbo.sysjobservers s JOIN msdb.dbo.cdc_jobs c ON c.job_id = s.job_id"
        " WHERE c.database_id = DB_ID() AND c.job_type = 'capture'"
    )
    assert (server["last_run_outcome"], server["last_run_date"]) == (0, outcome["run_date"])
    assert server["last_outcome_message"] == outcome["message"]


def test_scan_that_fails_is_tried_again_every_minute_and_after_ten_times_the_job_is_down(shop: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Job history": narrowing, while the change table holds what is too long."""
    shop.run("INSERT dbo.t (id, v) VALUES (1, 'a long value')", "DELETE dbo.t")
    wait_until(lambda: len(shop.change_table("dbo_t")) == 2)
    shop.run("ALTER TABLE dbo.t ALTER COLUMN v varchar(3)", "INSERT dbo.t (id, v) VALUES (2, 'abc')")
    for attempts in range(1, 11):
        wait_until(lambda: outcomes(shop, "capture") == [(1, 1), *[(2, 2)] * attempts])  # noqa: B023 - at once
        shop.run("EXEC emulator.advance_clock @seconds = 60")
    wait_until(lambda: outcomes(shop, "capture") == [(1, 1), *[(2, 2)] * 10, (2, 0), (0, 0)])
    rows = history(shop, "capture", "h.step_id = 2")
    assert [row["retries_attempted"] for row in rows] == list(range(11))
    assert all(row["sql_message_id"] == 22976 for row in rows)
    assert "(Error 2628)." in rows[0]["message"]
    assert rows[-1]["message"].endswith(
        "NOTE: The step was retried the requested number of times (10) without succeeding.  The step failed."
    )
    wait_until(
        lambda: not shop.query("EXEC msdb.dbo.sp_help_job @execution_status = 1, @description = N'CDC Log Scan Job'")
    )
    assert shop.error_of("EXEC sys.sp_cdc_stop_job") == 22022
    shop.run("DELETE cdc.dbo_t_CT")
    shop.run("EXEC sys.sp_cdc_start_job")
    wait_until(lambda: [row["id"] for row in shop.change_table("dbo_t")] == [2])


def test_cleanup_is_run_by_its_schedule_and_on_request(shop: CdcDatabase) -> None:
    shop.run("INSERT dbo.t (id) VALUES (1)")
    wait_until(lambda: len(shop.change_table("dbo_t")) == 1)
    (scheduled,) = shop.query(
        "SELECT a.next_scheduled_run_date AS next FROM msdb.dbo.sysjobactivity a JOIN msdb.dbo.cdc_jobs c"
        " ON c.job_id = a.job_id WHERE c.job_type = 'capture' AND c.database_id = DB_ID()"
    )
    assert scheduled["next"] is None
    wait_until(lambda: outcomes(shop, "cleanup") == [(1, 1), (0, 1)])
    assert "invoked by User sa." in history(shop, "cleanup")[-1]["message"]  # with the first table
    shop.run("EXEC emulator.advance_clock @seconds = 86400")
    wait_until(lambda: len(outcomes(shop, "cleanup")) == 4)
    _, _, step, outcome = history(shop, "cleanup")
    assert step["step_name"] == _CLEANUP_STEP
    (schedule,) = shop.query(
        "SELECT s.schedule_id, s.freq_type, s.active_start_time, n.next_run_time FROM msdb.dbo.sysschedules s"
        " JOIN msdb.dbo.sysjobschedules n ON n.schedule_id = s.schedule_id"
        " JOIN msdb.dbo.sysjobs j ON j.job_id = n.job_id"
        f" WHERE j.name = N'cdc.{shop.name}_cleanup' AND s.name = N'CDC cleanup agent schedule.'"
    )
    assert (schedule["freq_type"], schedule["active_start_time"], schedule["next_run_time"]) == (4, 20000, 20000)
    by = f"The Job was invoked by Schedule {schedule['schedule_id']} (CDC cleanup agent schedule.)."
    assert outcome["message"] == f"The job succeeded.  {by}  The last step to run was step 1 ({_CLEANUP_STEP})."
    shop.run("EXEC sys.sp_cdc_start_job N'cleanup'")
    wait_until(lambda: len(outcomes(shop, "cleanup")) == 6)
    assert "invoked by User sa." in history(shop, "cleanup")[-1]["message"]


def test_agent_that_stops_cancels_the_runs_and_starts_them_with_its_next_session(shop: CdcDatabase) -> None:
    wait_until(lambda: running(shop))
    (before,) = shop.query("SELECT MAX(session_id) AS id FROM msdb.dbo.syssessions")
    shop.run("EXEC emulator.stop_agent")
    assert outcomes(shop, "capture") == [(1, 1), (2, 3), (0, 3)]
    message = history(shop, "capture")[-1]["message"]
    assert message.startswith("The job was stopped prior to completion by Shutdown Sequence 0.  The Job was invoked by")
    shop.run("EXEC emulator.clear_faults")
    wait_until(lambda: len(outcomes(shop, "capture")) == 4)
    shop.run("EXEC sys.sp_cdc_stop_job")
    wait_until(lambda: len(outcomes(shop, "capture")) == 6)
    assert "The Job was invoked by Start Sequence 0." in history(shop, "capture")[-1]["message"]
    (after,) = shop.query("SELECT MAX(session_id) AS id FROM msdb.dbo.syssessions")
    assert after["id"] == before["id"] + 1


def test_history_keeps_a_hundred_rows_of_a_job_and_goes_with_it(shop: CdcDatabase) -> None:
    wait_until(lambda: running(shop))
    (first,) = history(shop, "capture")
    shop.run("EXEC emulator.fail_capture")
    wait_until(lambda: len(outcomes(shop, "capture")) == 3)
    while (newest := history(shop, "capture")[-1])["instance_id"] < first["instance_id"] + 120:
        shop.run("EXEC sys.sp_cdc_start_job")
        wait_until(lambda: history(shop, "capture")[-1]["instance_id"] >= newest["instance_id"] + 3)
    assert len(history(shop, "capture")) == 100
    assert history(shop, "capture")[0]["instance_id"] > first["instance_id"]
    shop.run("EXEC sys.sp_cdc_drop_job N'capture'")
    assert history(shop, "capture") == []


def test_help_job_has_the_job_its_steps_its_schedule_and_its_server(shop: CdcDatabase) -> None:
    name = f"cdc.{shop.name}_capture"
    wait_until(lambda: running(shop))
    job, steps, schedules, servers = results(shop, f"EXEC msdb.dbo.sp_help_job @job_name = N'{name}'")
    assert [row["name"] for row in job] == [name]
    assert (job[0]["category"], job[0]["description"], job[0]["owner"]) == ("REPL-LogReader", "CDC Log Scan Job", "sa")
    assert (job[0]["current_execution_status"], job[0]["last_run_outcome"]) == (1, 5)
    assert job[0]["current_execution_step"] == f"2 ({_CAPTURE_STEP})"
    assert [(row["step_id"], row["command"], row["retry_attempts"], row["retry_interval"]) for row in steps] == [
        (1, "RAISERROR(22801, 10, -1)", 10, 1),
        (2, "sys.sp_MScdc_capture_job", 10, 1),
    ]
    assert [(row["schedule_name"], row["freq_type"]) for row in schedules] == [("CDC capture agent schedule.", 64)]
    assert [row["last_run_outcome"] for row in servers] == [5]
    (jobs,) = results(shop, "EXEC msdb.dbo.sp_help_job @execution_status = 1, @category_name = N'REPL-LogReader'")
    assert name in [row["name"] for row in jobs]
    (target,) = results(shop, f"EXEC msdb.dbo.sp_help_job @job_name = N'{name}', @job_aspect = 'STEPS'")
    assert len(target) == 2


def test_help_of_activity_and_history_can_be_asked_for_one_job(shop: CdcDatabase) -> None:
    name = f"cdc.{shop.name}_capture"
    wait_until(lambda: running(shop))
    (activity,) = shop.query(f"EXEC msdb.dbo.sp_help_jobactivity @job_name = N'{name}'")
    assert (activity["job_name"], activity["run_status"], activity["stop_execution_date"]) == (name, None, None)
    shop.run("EXEC sys.sp_cdc_stop_job")
    wait_until(lambda: len(outcomes(shop, "capture")) == 3)
    (activity,) = shop.query(f"EXEC msdb.dbo.sp_help_jobactivity @job_name = N'{name}'")
    assert (activity["run_status"], activity["message"][:19]) == (3, "The job was stopped")
    summary = shop.query(f"EXEC msdb.dbo.sp_help_jobhistory @job_name = N'{name}'")
    assert [row["run_status"] for row in summary] == [3, 3, 1]
    assert " ".join(summary[0]) == (
        "job_name run_status run_date run_time run_duration operator_emailed operator_netsent operator_paged"
        " retries_attempted server"
    )
    full = shop.query(
        f"EXEC msdb.dbo.sp_help_jobhistory NULL, N'{name}', @step_id = 2, @run_status = 3, @mode = 'FULL'"
    )
    assert [(row["step_name"], row["server"]) for row in full] == [
        (_CAPTURE_STEP, shop.scalar("CAST(SERVERPROPERTY('ServerName') AS sysname)"))
    ]
    oldest = shop.query(f"EXEC msdb.dbo.sp_help_jobhistory @job_name = N'{name}', @oldest_first = 1")
    assert [row["run_status"] for row in oldest] == [1, 3, 3]


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("msdb.dbo.sp_help_job @job_name = N'nothing of that name'", 14262),
        ("msdb.dbo.sp_help_jobhistory @mode = 'ALL'", 14266),
        ("msdb.dbo.sp_start_job", 14294),
        ("msdb.dbo.sp_stop_job @job_name = N'{0}', @job_id = '00000000-0000-0000-0000-000000000000'", 14294),
        ("msdb.dbo.sp_help_job @job_name = N'{0}', @enabled = 1", 14280),
        ("msdb.dbo.sp_help_job @date_comparator = '='", 14282),
        ("msdb.dbo.sp_start_job N'{0}', @step_name = N'x'", 49999),
        ("sp_help_job", 2812),
        ("msdb.dbo.sp_help_jobstep", 49999),
    ],
)
def test_agent_procedure_refuses_what_it_cannot_do(shop: CdcDatabase, call: str, number: int) -> None:
    assert shop.error_of(f"EXEC {call.format(f'cdc.{shop.name}_capture')}") == number


def test_jobs_of_msdb_are_not_everyone_s(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    """A user of msdb reads what was granted; the procedures are the sysadmin's."""
    login = f"dba_{shop.name}"
    shop.run(f"CREATE LOGIN {login} WITH PASSWORD = 'Str0ng-Password'", f"CREATE USER {login}")
    shop.run(f"USE msdb; CREATE USER {login}; GRANT SELECT ON dbo.sysjobhistory TO {login}; USE [{shop.name}]")
    with pymssql.connect(
        server=controlled_emulator.host,
        port=str(controlled_emulator.port),
        user=login,
        password="Str0ng-Password",
        database="msdb",
    ) as connection:
        reader = CdcDatabase("msdb", connection)
        assert reader.query("SELECT COUNT(*) AS n FROM msdb.dbo.sysjobhistory")[0]["n"] >= 0
        assert reader.error_of("SELECT * FROM msdb.dbo.sysjobs") == 229
        assert reader.error_of("EXEC dbo.sp_help_job") == 229
    shop.run(f"USE msdb; DROP USER {login}; USE [{shop.name}]", f"DROP USER {login}", f"DROP LOGIN {login}")
