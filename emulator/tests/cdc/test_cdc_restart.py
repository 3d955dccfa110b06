"""State of change data capture that a restart of the server forgets (docs/reference/sqlserver_cdc.md, "Dynamic views"),
and state that it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_database import wait_until
from emulator_process import running_emulator

_SCANS = "SELECT SUM(tran_count) FROM sys.dm_cdc_log_scan_sessions WHERE session_id > 0"
_JOBS = "SELECT job_type, maxscans, retention FROM msdb.dbo.cdc_jobs ORDER BY job_type"


@contextmanager
def started(folder: Path) -> Iterator[Any]:
    with (
        running_emulator(folder) as emulator,
        emulator.connect_pymssql(autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


def rows(cursor: Any, sql: str) -> list[tuple[Any, ...]]:
    cursor.execute(sql)
    return list(cursor.fetchall())


def test_management_views_begin_empty_and_jobs_and_changes_are_kept(open_dir: Path) -> None:
    folder = open_dir / "restarted-cdc"
    with started(folder) as cursor:
        for batch in (
            "CREATE DATABASE Kept",
            "USE Kept",
            "EXEC sys.sp_cdc_enable_db",
            "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)",
            "EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL",
            "EXEC sys.sp_cdc_change_job @maxscans = 7",
            "INSERT dbo.t VALUES (1)",
        ):
            cursor.execute(batch)
        wait_until(lambda: (rows(cursor, _SCANS)[0][0] or 0) > 0)
        jobs = rows(cursor, _JOBS)
    with started(folder) as cursor:
        cursor.execute("USE Kept")
        assert not rows(cursor, _SCANS)[0][0]
        assert rows(cursor, "SELECT id FROM cdc.dbo_t_CT") == [(1,)]
        assert rows(cursor, _JOBS) == jobs
        assert jobs[0][:2] == ("capture", 7)
        cursor.execute("INSERT dbo.t VALUES (2)")
        wait_until(lambda: rows(cursor, "SELECT id FROM cdc.dbo_t_CT ORDER BY id") == [(1,), (2,)])
        cursor.execute("EXEC sys.sp_cdc_disable_db")
