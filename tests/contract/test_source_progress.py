"""How far the source is ahead of a watermark, and how long it keeps what is, over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.position import Lsn
from floodmark.core.progress import SourceProgress
from floodmark.core.schema import TableName
from floodmark.sources.cdc.source import read_progress
from floodmark.sources.sqlserver.driver import SqlServerConnection

READER = "progress_reader"
PASSWORD = "Pr0gress!reader"


@pytest.fixture(scope="module")
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run("CREATE TABLE dbo.Orders (Id int PRIMARY KEY)")
        made.enable("Orders")
        made.run(f"CREATE LOGIN {READER} WITH PASSWORD = '{PASSWORD}'", f"CREATE USER {READER} FOR LOGIN {READER}")
        yield made
        made.run(f"DROP USER {READER}", f"DROP LOGIN {READER}")


@pytest.fixture
def at(emulator: Emulator, database: CdcDatabase) -> SqlServerConnection:
    return SqlServerConnection(
        emulator.host, emulator.port, database.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
    )


def newest(database: CdcDatabase) -> Lsn:
    return Lsn(database.scalar("sys.fn_cdc_get_max_lsn()"))


def test_transactions_are_counted_after_each_watermark(at: SqlServerConnection, database: CdcDatabase) -> None:
    before = newest(database)
    database.run("INSERT INTO dbo.Orders VALUES (1), (2)", "UPDATE dbo.Orders SET Id = 3 WHERE Id = 2")
    database.scan()
    between = newest(database)
    database.run("DELETE dbo.Orders")
    database.scan()
    progress = read_progress(at, [before, between, newest(database), before])
    assert progress.transactions_behind == {before: 3, between: 1, newest(database): 0}
    assert progress.retention_minutes == 4320


def test_change_tables_have_their_sizes_for_a_login_that_may_only_read_them(
    at: SqlServerConnection, database: CdcDatabase
) -> None:
    database.run("CREATE TABLE dbo.Sized (Id int PRIMARY KEY)")
    database.enable("Sized", supports_net_changes="1")
    reader = replace(at, user=READER, password=PASSWORD)
    assert read_progress(reader, []).sizes == ()
    database.run(f"GRANT SELECT ON dbo.Sized TO {READER}")
    (hidden,) = read_progress(reader, []).sizes
    assert (hidden.instance, hidden.rows, hidden.size_bytes) == ("dbo_Sized", None, None)
    database.run(f"GRANT SELECT ON cdc.dbo_Sized_CT TO {READER}")
    (empty,) = read_progress(reader, []).sizes
    database.run("INSERT INTO dbo.Sized SELECT TOP (500) ROW_NUMBER() OVER (ORDER BY object_id) FROM sys.all_columns")
    database.scan()
    (full,) = read_progress(reader, []).sizes
    assert (full.table, empty.rows, full.rows) == (TableName("dbo", "Sized"), 0, 500)
    pages = database.query(
        "SELECT SUM(used_page_count) AS used FROM sys.dm_db_partition_stats"
        " WHERE object_id = OBJECT_ID(N'cdc.dbo_Sized_CT')"
    )[0]["used"]
    assert (empty.size_bytes or 0) < (full.size_bytes or 0) == pages * 8192
    assert full in read_progress(at, []).sizes
    database.run("EXEC sys.sp_cdc_disable_table N'dbo', N'Sized', N'all'")


def test_retention_is_that_of_the_cleanup_job(at: SqlServerConnection, database: CdcDatabase) -> None:
    database.run("EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = 600")
    assert read_progress(at, []).retention_minutes == 600
    database.run("EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = 4320")


def test_login_that_may_see_nothing_of_it_reads_nothing(at: SqlServerConnection, database: CdcDatabase) -> None:
    reader = replace(at, user=READER, password=PASSWORD)
    assert read_progress(reader, [newest(database)]).retention_minutes is None


def test_database_without_change_data_capture_has_no_progress(at: SqlServerConnection, emulator: Emulator) -> None:
    plain = replace(at, database="Test")
    assert read_progress(plain, [Lsn(b"\1" * 10)]) == SourceProgress({}, None)
