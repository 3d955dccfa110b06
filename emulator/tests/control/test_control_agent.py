"""SQL Server Agent stopped: change data capture is enabled and written as ever, and nothing is captured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import wait_until
from conformance_server import Client, Server, Source, new_database
from emulator_process import Emulator

_STOPPED = "SQLServerAgent is not currently running so it cannot be notified of this action."


@pytest.fixture
def source(controlled_emulator: Emulator) -> Iterator[Source]:
    server = Server(
        controlled_emulator.host,
        controlled_emulator.port,
        controlled_emulator.user,
        controlled_emulator.password,
        is_emulator=True,
    )
    with new_database(server) as made:
        made.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
        yield made
        made.admin.run("EXEC emulator.reset")


def _agent(client: Client) -> tuple[object, ...]:
    ((*status,),) = client.rows(
        "SELECT status, status_desc FROM sys.dm_server_services WHERE servicename LIKE N'SQL Server Agent%'"
    )
    return tuple(status)


def _log_reuse(client: Client) -> object:
    return client.rows("SELECT log_reuse_wait_desc FROM sys.databases WHERE database_id = DB_ID()")[0][0]


def test_g25_table_is_enabled_without_the_agent_and_says_so_four_times(source: Source) -> None:
    """G25 (R) FAB; docs/reference/sqlserver_cdc.md, "Enabling a database", "Enabling a table", "Job procedures",
    "Capture and cleanup jobs"."""
    admin = source.admin
    admin.run("EXEC emulator.stop_agent")
    assert _agent(admin) == (1, "Stopped")
    reply = admin.send("EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL")
    assert [m.text for m in reply.messages if m.number != 22969] == [_STOPPED] * 4
    assert reply.errors == []
    assert len(admin.query("EXEC sys.sp_cdc_help_jobs")) == 2
    admin.run("INSERT dbo.t VALUES (1)")
    assert source.changes("dbo_t") == []
    assert admin.scalar("sys.fn_cdc_get_max_lsn()") is None
    assert _log_reuse(admin) == "REPLICATION"
    for call in ("sp_cdc_start_job", "sp_cdc_stop_job", "sp_cdc_start_job N'cleanup'"):
        error = admin.error(f"EXEC sys.{call}")
        assert (error.number, error.text) == (22022, f"SQLServerAgent Error: {_STOPPED}")
    admin.run("EXEC emulator.clear_faults")
    assert _agent(admin) == (4, "Running")
    wait_until(lambda: [row["id"] for row in source.changes("dbo_t")] == [1])


def test_scan_by_hand_works_without_the_agent_and_running_jobs_end_with_it(source: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Scan by hand"."""
    admin = source.admin
    admin.run("EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL", "INSERT dbo.t VALUES (1)")
    wait_until(lambda: len(source.changes("dbo_t")) == 1)
    admin.run("EXEC emulator.stop_agent", "EXEC emulator.stop_agent")
    running = (
        "SELECT 1 FROM msdb.dbo.sysjobactivity WHERE start_execution_date IS NOT NULL AND stop_execution_date IS NULL"
    )
    assert admin.rows(running) == []
    assert [row["fault"] for row in admin.query("EXEC emulator.help_faults")] == ["agent stopped"]
    admin.run("INSERT dbo.t VALUES (2)", "EXEC sys.sp_cdc_scan")
    assert [row["id"] for row in source.changes("dbo_t")] == [1, 2]
