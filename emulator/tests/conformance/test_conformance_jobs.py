"""See docs/reference/sqlserver_cdc.md, "Job procedures" and "Scan by hand": the capture and the cleanup job, what the
Agent says, a scan by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import wait_until
from conformance_server import Server, Source, new_database

_JOBS = (
    ("job_id", "uniqueidentifier"),
    ("job_type", "nvarchar(20)"),
    ("maxtrans", "int"),
    ("maxscans", "int"),
    ("continuous", "bit"),
    ("pollinginterval", "bigint"),
    ("retention", "bigint"),
    ("threshold", "bigint"),
)
_TABLE_JOBS = (("database_id", "int"), _JOBS[1], _JOBS[0], *_JOBS[2:])
_SETTINGS = "maxtrans, maxscans, continuous, pollinginterval, retention, threshold"
_RUNNING = (
    "SELECT 1 FROM msdb.dbo.sysjobactivity a JOIN msdb.dbo.sysjobs j ON j.job_id = a.job_id"
    " WHERE j.name = N'cdc.{0}_capture' AND a.start_execution_date IS NOT NULL AND a.stop_execution_date IS NULL"
    " AND a.session_id = (SELECT MAX(session_id) FROM msdb.dbo.sysjobactivity)"
)


_CLEANING = (
    "SELECT 1 FROM msdb.dbo.sysjobactivity a JOIN msdb.dbo.sysjobs j ON j.job_id = a.job_id"
    " WHERE j.name = N'cdc.{0}_cleanup' AND a.run_requested_date IS NOT NULL AND a.stop_execution_date IS NULL"
    " AND a.session_id = (SELECT MAX(session_id) FROM msdb.dbo.sysjobactivity)"
)


@pytest.fixture
def tracked(source: Source) -> Source:
    """With a table, and the capture job stopped."""
    source.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    source.enable("t")
    return source


@pytest.fixture(scope="module")
def jobs(server: Server) -> Iterator[Source]:
    with new_database(server) as made:
        made.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
        made.enable("t")
        yield made


def test_help_jobs_has_its_columns_in_order_with_their_types(jobs: Source) -> None:
    found = jobs.admin.result("EXEC sys.sp_cdc_help_jobs")
    shown = tuple(pair for pair in zip(found.columns, found.types, strict=True) if pair[0] != "job_name")
    assert shown == _JOBS
    assert [row["job_type"] for row in found.dicts] == ["capture", "cleanup"]


def test_job_table_of_msdb_has_its_columns_and_a_row_for_each_job(jobs: Source) -> None:
    found = jobs.admin.result("SELECT * FROM msdb.dbo.cdc_jobs WHERE database_id = DB_ID() ORDER BY job_type")
    assert tuple(zip(found.columns, found.types, strict=True))[: len(_TABLE_JOBS)] == _TABLE_JOBS
    helped = jobs.admin.query("EXEC sys.sp_cdc_help_jobs")
    assert [row["job_id"] for row in found.dicts] == [row["job_id"] for row in helped]


def test_settings_of_the_other_job_are_zero(jobs: Source) -> None:
    capture, cleanup = jobs.admin.query("EXEC sys.sp_cdc_help_jobs")
    assert (capture["retention"], capture["threshold"]) == (0, 0)
    assert [cleanup[name] for name in ("maxtrans", "maxscans", "continuous", "pollinginterval")] == [0, 0, False, 0]
    assert (capture["maxscans"], capture["continuous"], capture["pollinginterval"]) == (10, True, 5)
    assert cleanup["retention"] == 4320


def test_jobs_have_names_that_the_agent_shows(jobs: Source) -> None:
    rows = jobs.admin.rows(
        "SELECT s.name FROM msdb.dbo.sysjobs s JOIN msdb.dbo.cdc_jobs c ON c.job_id = s.job_id"
        " WHERE c.database_id = DB_ID() ORDER BY s.name"
    )
    assert rows == [(f"cdc.{jobs.name}_capture",), (f"cdc.{jobs.name}_cleanup",)]


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("sp_cdc_add_job N'other'", 22992),
        ("sp_cdc_change_job N'other'", 22992),
        ("sp_cdc_drop_job N'other'", 22992),
        ("sp_cdc_start_job N'other'", 22992),
        ("sp_cdc_stop_job NULL", 22992),
        ("sp_cdc_change_job @maxtrans = 0", 22991),
        ("sp_cdc_change_job @maxscans = 0", 22970),
        ("sp_cdc_change_job @pollinginterval = -1", 22990),
        ("sp_cdc_change_job @pollinginterval = 86400", 22990),
        ("sp_cdc_change_job @retention = 5", 22995),
        ("sp_cdc_change_job N'cleanup', @maxtrans = 5", 22996),
        ("sp_cdc_change_job N'cleanup', @pollinginterval = 5", 22996),
        ("sp_cdc_change_job N'cleanup', @retention = 0", 22994),
        ("sp_cdc_change_job N'cleanup', @retention = 52594801", 22994),
        ("sp_cdc_change_job N'cleanup', @threshold = 0", 22850),
        ("sp_cdc_scan @continuous = 2", 22998),
        ("sp_cdc_scan @continuous = 2, @maxtrans = 0, @maxscans = 0", 22998),
        ("sp_cdc_scan @pollinginterval = 5, @maxtrans = 0", 22999),
        ("sp_cdc_scan @continuous = 1, @pollinginterval = 86400, @maxtrans = 0", 22990),
        ("sp_cdc_scan @maxtrans = 0, @maxscans = 0", 22991),
        ("sp_cdc_scan @maxscans = 0", 22970),
    ],
)
def test_argument_of_a_job_or_scan_is_refused(jobs: Source, call: str, number: int) -> None:
    error = jobs.admin.error(f"EXEC sys.{call}")
    assert (error.number, error.severity, error.state) == (number, 16, 1)


@pytest.mark.parametrize(
    "call",
    [
        "sp_cdc_add_job N'capture'",
        "sp_cdc_change_job",
        "sp_cdc_drop_job N'capture'",
        "sp_cdc_start_job",
        "sp_cdc_stop_job",
        "sp_cdc_help_jobs",
        "sp_cdc_scan",
    ],
)
def test_jobs_are_the_database_owner_s(jobs: Source, call: str) -> None:
    reader = jobs.log_in("SELECT ON dbo.t")
    error = reader.error(f"EXEC sys.{call}")
    assert (error.number, error.severity, error.state) == (22904, 16, 1)
    reader.close()


@pytest.mark.parametrize("call", ["sp_cdc_help_jobs", "sp_cdc_scan", "sp_cdc_start_job", "sp_cdc_add_job N'capture'"])
def test_jobs_need_a_database_with_cdc(server: Server, call: str) -> None:
    with new_database(server, with_cdc=False) as plain:
        error = plain.admin.error(f"EXEC sys.{call}")
        assert (error.number, error.severity, error.state) == (22901, 16, 1)


def test_null_leaves_a_setting_and_polling_and_continuous_settle_each_other(tracked: Source) -> None:
    admin = tracked.admin
    capture = f"SELECT {_SETTINGS} FROM msdb.dbo.cdc_jobs WHERE database_id = DB_ID() AND job_type = N'capture'"
    maxtrans = admin.rows(capture)[0][0]
    admin.run("EXEC sys.sp_cdc_change_job @maxscans = 7")
    assert admin.rows(capture) == [(maxtrans, 7, True, 5, 0, 0)]
    admin.run("EXEC sys.sp_cdc_change_job @continuous = 0")
    assert admin.rows(capture) == [(maxtrans, 7, False, 0, 0, 0)]
    admin.run("EXEC sys.sp_cdc_change_job N'capture', @pollinginterval = 3")
    assert admin.rows(capture) == [(maxtrans, 7, True, 3, 0, 0)]
    for _ in range(2):  # also where it was not continuous before
        admin.run("EXEC sys.sp_cdc_change_job @continuous = 0, @pollinginterval = 9")
        assert admin.rows(capture) == [(maxtrans, 7, False, 0, 0, 0)]
    admin.run("EXEC sys.sp_cdc_change_job @continuous = 1, @pollinginterval = 9")
    assert admin.rows(capture) == [(maxtrans, 7, True, 9, 0, 0)]


def test_dropped_job_is_gone_and_can_be_added_with_other_settings(tracked: Source) -> None:
    admin = tracked.admin
    admin.run("EXEC sys.sp_cdc_drop_job N'cleanup'")
    assert [row["job_type"] for row in admin.query("EXEC sys.sp_cdc_help_jobs")] == ["capture"]
    for call in ("sp_cdc_drop_job N'cleanup'", "sp_cdc_change_job N'cleanup'", "sp_cdc_start_job N'cleanup'"):
        error = admin.error(f"EXEC sys.{call}")
        assert (error.number, error.severity, error.state) == (22997, 16, 1)
    admin.run("EXEC sys.sp_cdc_add_job @job_type = N'cleanup', @start_job = 0, @retention = 60, @threshold = 10")
    row = admin.query("EXEC sys.sp_cdc_help_jobs")[1]
    assert (row["retention"], row["threshold"], row["maxtrans"]) == (60, 10, 0)


def test_agent_s_refusal_reaches_the_client_past_every_catch(tracked: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Job procedures", G50 (R) FAB 10.2: the Agent raises 22022, not the
    engine."""
    admin = tracked.admin
    wait_until(lambda: not admin.rows(_RUNNING.format(tracked.name)))
    reply = admin.send(
        "DECLARE @r int = 9; BEGIN TRY EXEC @r = sys.sp_cdc_stop_job; SELECT @r END TRY BEGIN CATCH SELECT -1 END CATCH"
    )
    (error,) = reply.errors
    assert (error.number, error.severity, error.state) == (22022, 16, 1)
    assert error.text.startswith(f"SQLServerAgent Error: Request to stop job cdc.{tracked.name}_capture (from User ")
    assert error.text.endswith("refused because the job is not currently running.")
    assert reply.results[-1].rows == [(1,)]
    started = admin.send("EXEC sys.sp_cdc_start_job")
    assert [m.text for m in started.messages] == [f"Job 'cdc.{tracked.name}_capture' started successfully."]
    again = admin.error("EXEC sys.sp_cdc_start_job")
    assert again.number == 22022
    assert "refused because the job" in again.text
    tracked.is_job_stopped = False


def test_stopping_is_asynchronous_and_shows_in_the_agent_s_table(tracked: Source) -> None:
    admin = tracked.admin
    admin.run("EXEC sys.sp_cdc_start_job")
    wait_until(lambda: admin.rows(_RUNNING.format(tracked.name)) != [])
    stopped = admin.send("EXEC sys.sp_cdc_stop_job")
    assert [m.text for m in stopped.messages] == [f"Job 'cdc.{tracked.name}_capture' stopped successfully."]
    wait_until(lambda: admin.rows(_RUNNING.format(tracked.name)) == [])


def test_settings_are_those_of_when_the_job_started(tracked: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Job procedures": a change takes effect after a restart; a job that is not
    continuous ends by itself."""
    admin = tracked.admin
    is_running = lambda: admin.rows(_RUNNING.format(tracked.name)) != []  # noqa: E731
    admin.run("EXEC sys.sp_cdc_start_job")
    wait_until(is_running)
    admin.run("EXEC sys.sp_cdc_change_job @continuous = 0", "INSERT dbo.t VALUES (1)")
    wait_until(lambda: tracked.changes("dbo_t") != [])
    assert is_running()
    admin.run("EXEC sys.sp_cdc_stop_job")
    wait_until(lambda: not is_running())
    admin.run("INSERT dbo.t VALUES (2)", "EXEC sys.sp_cdc_start_job")
    wait_until(lambda: len(tracked.changes("dbo_t")) == 2 and not is_running())


def test_cleanup_job_is_started_by_hand(tracked: Source) -> None:
    # It was started when the table was enabled.
    wait_until(lambda: tracked.admin.rows(_CLEANING.format(tracked.name)) == [])
    started = tracked.admin.send("EXEC sys.sp_cdc_start_job N'cleanup'")
    assert [m.text for m in started.messages] == [f"Job 'cdc.{tracked.name}_cleanup' started successfully."]


def test_scan_by_hand_gives_no_result_and_no_message(tracked: Source) -> None:
    tracked.admin.run("INSERT dbo.t VALUES (1)")
    reply = tracked.admin.send("DECLARE @r int; EXEC @r = sys.sp_cdc_scan @maxtrans = 500, @maxscans = 1; SELECT @r")
    assert (reply.messages, len(reply.results), reply.results[0].rows) == ([], 1, [(0,)])
    assert [row["id"] for row in tracked.changes("dbo_t")] == [1]


def test_scan_is_refused_while_the_capture_job_reads_the_log(tracked: Source) -> None:
    """G50 (R) FAB 10.2."""
    admin = tracked.admin
    admin.run("EXEC sys.sp_cdc_start_job")
    wait_until(lambda: any(e.number == 22903 for e in admin.send("EXEC sys.sp_cdc_scan").errors))
    error = admin.error("EXEC sys.sp_cdc_scan")
    assert (error.severity, error.state) == (16, 1)
    assert error.text.startswith("Another connection with session ID ")
    assert error.text.endswith(" is already running 'sp_replcmds' for Change Data Capture in the current database.")
