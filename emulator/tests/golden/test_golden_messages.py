"""Published messages and errors, word for word, through python-tds. Keys are those of docs/reference/sqlserver_cdc.md,
"Published transcripts"."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cdc_database import wait_until
from conformance_server import VARIABLE, Server, Source, new_database, server_under_test


@pytest.fixture(scope="module")
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    server: Server = server_under_test(lambda: request.getfixturevalue("emulator"))
    with new_database(server) as made:
        yield made


def test_g25_first_table_prints_three_lines(source: Source) -> None:
    """G25 (R) SCR."""
    source.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, a int)")
    reply = source.admin.send("EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL")
    assert [m.text for m in reply.messages] == [
        "Update mask evaluation will be disabled in net_changes_function because the CLR configuration option is"
        " disabled.",
        f"Job 'cdc.{source.name}_capture' started successfully.",
        f"Job 'cdc.{source.name}_cleanup' started successfully.",
    ]


def test_g50_scan_while_the_job_runs_then_without_it(source: Source) -> None:
    """G50 (R) FAB 10.2: refused, then ten of ten succeed; the Agent refuses to stop what does not run."""
    wait_until(lambda: any(e.number == 22903 for e in source.admin.send("EXEC sys.sp_cdc_scan").errors))
    stopped = source.admin.send("EXEC sys.sp_cdc_stop_job")
    assert [m.text for m in stopped.messages] == [f"Job 'cdc.{source.name}_capture' stopped successfully."]
    for _ in range(10):
        source.scan()
    error = source.admin.error("EXEC sys.sp_cdc_stop_job")
    assert error.number == 22022
    assert error.text.endswith("refused because the job is not currently running.")


def test_g38_rename_of_a_captured_column(source: Source) -> None:
    """G38 (R) FAB, CW; the line is that of Microsoft's own procedure."""
    error = source.admin.error("EXEC sp_rename N'dbo.t.a', N'b', N'COLUMN'")
    assert (error.number, error.severity, error.state, error.procedure, error.text) == (
        4928,
        16,
        1,
        "sp_rename",
        "Cannot alter column 'a' because it is 'REPLICATED'.",
    )


def test_g41_third_instance(source: Source) -> None:
    """G41 (R) FAB 2.2."""
    enable = "EXEC sys.sp_cdc_enable_table N'dbo', N't', N'{0}', @role_name = NULL"
    source.admin.run(enable.format("second"))
    error = source.admin.error(enable.format("third"))
    assert (error.number, error.severity, error.state) == (22962, 16, 1)
    assert error.text.startswith(
        "Two capture instances already exist for source table 'dbo.t'. A table can have at most two capture instances."
    )


@pytest.mark.parametrize("low", ["0x00000000000000000001", "NULL", "0xFFFFFFFFFFFFFFFFFFFF"])
def test_g44_window_inside_an_insert(source: Source, low: str) -> None:
    """G44 (R) FAB 2.1, CTEST."""
    source.scan()
    reply = source.admin.send(
        "CREATE TABLE #o (o int); INSERT #o SELECT [__$operation] FROM cdc.fn_cdc_get_all_changes_dbo_t"
        f"({low}, sys.fn_cdc_get_max_lsn(), N'all'); DROP TABLE #o"
    )
    assert [(m.number, m.severity, m.state) for m in reply.errors] == [(313, 16, 3)]
    assert [m.text for m in reply.messages] == [
        "An insufficient number of arguments were supplied for the procedure or function"
        " cdc.fn_cdc_get_all_changes_ ... .",
        "The statement has been terminated.",
    ]


def test_g50_stop_before_the_agent_knows_of_the_job(source: Source) -> None:
    """G50 (R) FAB 10.2: the job that was added by hand and not started."""
    source.admin.send("EXEC sys.sp_cdc_stop_job")
    source.admin.run("EXEC sys.sp_cdc_drop_job N'capture'", "EXEC sys.sp_cdc_add_job N'capture', @start_job = 0")
    error = source.admin.error("EXEC sys.sp_cdc_stop_job")
    assert error.number == 22022
    assert error.text.startswith(f"SQLServerAgent Error: Request to stop job cdc.{source.name}_capture")
    assert error.text.endswith("refused because the job is not currently running.")


@pytest.mark.skipif(
    not os.environ.get(VARIABLE),
    reason="G49 (R) FAB 1.8: maxtrans 10000 and threshold 4999 are SQL Server 2025's; the emulator is a 2022, whose"
    " 500 and 5000 test_golden_windows replays. Latencies of three to five seconds are the default polling interval,"
    " which test servers replace.",
)
def test_g49_jobs_of_2025(source: Source) -> None:
    if int(str(source.admin.scalar("CAST(SERVERPROPERTY('ProductMajorVersion') AS int)"))) < 17:
        pytest.skip("not a SQL Server 2025")
    capture, cleanup = source.admin.query("EXEC sys.sp_cdc_help_jobs")
    assert (capture["maxtrans"], capture["maxscans"], cleanup["threshold"]) == (10000, 10, 4999)


def test_g53_change_event_streaming_is_not_there(source: Source) -> None:
    """G53: the samples are what a stream sends to an event hub, with nothing put in; the emulator has no streams."""
    error = source.admin.error("EXEC sys.sp_enable_event_stream")
    assert error.number in (2812, 49999)


def test_g47_idle_log_is_marked_every_300_seconds(source: Source) -> None:
    """G47 (R) MCP10: without changes of tracked tables the newest LSN moves only when more than 300 s have gone by."""
    if not source.server.is_emulator:
        pytest.skip("a real server's clock cannot be advanced: the published run took minutes")
    admin = source.admin
    newest = "sys.fn_cdc_get_max_lsn()"
    source.scan()
    admin.run("CREATE TABLE dbo.untracked (id int)", "EXEC sys.sp_cdc_start_job")
    try:
        before = admin.scalar(newest)
        admin.run("EXEC emulator.advance_clock 290", "INSERT dbo.untracked VALUES (1)")
        assert admin.scalar(newest) == before
        admin.run("EXEC emulator.advance_clock 15")
        wait_until(lambda: admin.scalar(newest) > before)
        ((identity, begin),) = admin.rows(
            f"SELECT tran_id, tran_begin_lsn FROM cdc.lsn_time_mapping WHERE start_lsn = {newest}"
        )
        assert (identity, begin) == (b"\0", bytes(10))
        first = admin.scalar(newest)
        admin.run("EXEC emulator.advance_clock 295", "CHECKPOINT")
        assert admin.scalar(newest) == first
        admin.run("EXEC emulator.advance_clock 10")
        wait_until(lambda: admin.scalar(newest) > first)
    finally:
        admin.run("EXEC sys.sp_cdc_stop_job", "EXEC emulator.reset_clock")
