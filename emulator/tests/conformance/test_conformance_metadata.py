"""See docs/reference/sqlserver_cdc.md, "Metadata tables", "Dynamic views", "Time mapping": tables and views of change
data capture, column by column."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import wait_until
from conformance_server import Server, Source, new_database

_SYSNAME, _LSN, _TEXT_LSN = "nvarchar(128)", "binary(10)", "nvarchar(23)"
_TABLES = {
    "cdc.change_tables": (
        ("object_id", "int"), ("version", "int"), ("source_object_id", "int"), ("capture_instance", _SYSNAME),
        ("start_lsn", _LSN), ("end_lsn", _LSN), ("supports_net_changes", "bit"), ("has_drop_pending", "bit"),
        ("role_name", _SYSNAME), ("index_name", _SYSNAME), ("filegroup_name", _SYSNAME), ("create_date", "datetime"),
        ("partition_switch", "bit"),
    ),
    "cdc.captured_columns": (
        ("object_id", "int"), ("column_name", _SYSNAME), ("column_id", "int"), ("column_type", _SYSNAME),
        ("column_ordinal", "int"), ("is_computed", "bit"), ("masking_function", "nvarchar(4000)"),
    ),
    "cdc.index_columns": (
        ("object_id", "int"), ("column_name", _SYSNAME), ("index_ordinal", "tinyint"), ("column_id", "int"),
    ),
    "cdc.ddl_history": (
        ("source_object_id", "int"), ("object_id", "int"), ("required_column_update", "bit"),
        ("ddl_command", "nvarchar(max)"), ("ddl_lsn", _LSN), ("ddl_time", "datetime"),
    ),
    "cdc.lsn_time_mapping": (
        ("start_lsn", _LSN), ("tran_begin_time", "datetime"), ("tran_end_time", "datetime"),
        ("tran_id", "varbinary(10)"), ("tran_begin_lsn", _LSN),
    ),
    "cdc.dbo_t_CT": (
        ("__$start_lsn", _LSN), ("__$end_lsn", _LSN), ("__$seqval", _LSN), ("__$operation", "int"),
        ("__$update_mask", "varbinary(128)"), ("id", "int"), ("v", "varchar(10)"), ("__$command_id", "int"),
    ),
    "sys.dm_cdc_log_scan_sessions": (
        ("session_id", "int"), ("start_time", "datetime"), ("end_time", "datetime"), ("duration", "bigint"),
        ("scan_phase", "nvarchar(200)"), ("error_count", "int"), ("start_lsn", _TEXT_LSN), ("current_lsn", _TEXT_LSN),
        ("end_lsn", _TEXT_LSN), ("tran_count", "bigint"), ("last_commit_lsn", _TEXT_LSN),
        ("last_commit_time", "datetime"), ("log_record_count", "bigint"), ("schema_change_count", "int"),
        ("command_count", "bigint"), ("first_begin_cdc_lsn", _TEXT_LSN), ("last_commit_cdc_lsn", _TEXT_LSN),
        ("last_commit_cdc_time", "datetime"), ("latency", "int"), ("empty_scan_count", "int"),
        ("failed_sessions_count", "int"),
    ),
    "sys.dm_cdc_errors": (
        ("session_id", "int"), ("phase_number", "int"), ("entry_time", "datetime"), ("error_number", "int"),
        ("error_severity", "int"), ("error_state", "int"), ("error_message", "nvarchar(1024)"),
        ("start_lsn", _TEXT_LSN), ("begin_lsn", _TEXT_LSN), ("sequence_value", _TEXT_LSN),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def tables(server: Server) -> Iterator[Source]:
    with new_database(server) as made:
        made.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10) NOT NULL)")
        made.enable("t")
        made.admin.run("INSERT dbo.t VALUES (1, 'a')", "BEGIN TRAN; UPDATE dbo.t SET v = 'b'; DELETE dbo.t; COMMIT")
        made.scan()
        yield made


@pytest.mark.parametrize("table", list(_TABLES))
def test_table_has_its_columns_in_order_with_their_types(tables: Source, table: str) -> None:
    found = tables.admin.result(f"SELECT * FROM {table}")
    assert tuple(zip(found.columns, found.types, strict=True)) == _TABLES[table]


def test_captured_columns_are_listed_by_the_change_table_s_id(tables: Source) -> None:
    rows = tables.admin.rows(
        "SELECT k.column_name, k.column_id, k.column_type, k.column_ordinal, k.is_computed, k.masking_function"
        " FROM cdc.captured_columns k WHERE k.object_id = OBJECT_ID(N'cdc.dbo_t_CT') ORDER BY k.column_ordinal"
    )
    assert rows == [("id", 1, "int", 1, False, None), ("v", 2, "varchar", 2, False, None)]
    keys = "SELECT column_name, index_ordinal, column_id FROM cdc.index_columns"
    assert tables.admin.rows(f"{keys} WHERE object_id = OBJECT_ID(N'cdc.dbo_t_CT')") == [("id", 1, 1)]


def test_change_table_knows_its_source(tables: Source) -> None:
    rows = tables.admin.rows(
        "SELECT OBJECT_NAME(source_object_id), OBJECT_NAME(object_id), version, end_lsn FROM cdc.change_tables"
    )
    assert rows == [("t", "dbo_t_CT", 0, None)]


def test_time_line_has_an_entry_for_each_captured_transaction(tables: Source) -> None:
    entries = tables.admin.query("SELECT * FROM cdc.lsn_time_mapping WHERE tran_id <> 0x00 ORDER BY start_lsn")
    commits = tables.admin.rows("SELECT DISTINCT [__$start_lsn] FROM cdc.dbo_t_CT ORDER BY 1")
    assert [(row["start_lsn"],) for row in entries] == commits
    for row in entries:
        assert bytes(10) < row["tran_begin_lsn"] < row["start_lsn"]
        assert row["tran_begin_time"] <= row["tran_end_time"]
    times = [row["tran_end_time"] for row in entries]
    assert times == sorted(times)


def test_untracked_writes_leave_no_entry(tables: Source) -> None:
    count = "SELECT COUNT(*) FROM cdc.lsn_time_mapping"
    tables.admin.run("CREATE TABLE dbo.other (id int)")
    before = tables.admin.rows(count)
    tables.admin.run("INSERT dbo.other VALUES (1)")
    tables.scan()
    assert tables.admin.rows(count) == before


def test_scans_are_shown_with_text_lsns_and_an_aggregate(tables: Source) -> None:
    rows = tables.admin.query("SELECT * FROM sys.dm_cdc_log_scan_sessions ORDER BY session_id")
    assert (rows[0]["session_id"], rows[0]["scan_phase"]) == (0, "Aggregate")
    done = [row for row in rows if row["session_id"] > 0 and row["tran_count"] > 0]
    assert {row["scan_phase"] for row in done} == {"Done"}
    assert sum(row["tran_count"] for row in done) == rows[0]["tran_count"]
    last = done[-1]
    assert last["command_count"] >= 2
    newest = tables.admin.scalar("sys.fn_cdc_get_max_lsn()").hex().upper()
    assert last["last_commit_cdc_lsn"].upper() == f"{newest[:8]}:{newest[8:16]}:{newest[16:]}"
    assert last["error_count"] == 0


def test_32_scans_are_kept_and_the_aggregate_counts_all(source: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Dynamic views"."""
    source.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    source.enable("t")
    for i in range(34):
        source.admin.run(f"INSERT dbo.t VALUES ({i})")
        source.scan()
    kept = source.admin.rows("SELECT tran_count FROM sys.dm_cdc_log_scan_sessions WHERE session_id > 0")
    assert len(kept) <= 32
    ((total,),) = source.admin.rows("SELECT tran_count FROM sys.dm_cdc_log_scan_sessions WHERE session_id = 0")
    assert total >= 34 > sum(count for (count,) in kept)


def test_scans_that_find_nothing_share_a_row(source: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Dynamic views" (DBZ)."""
    source.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)",
                     "EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL")  # fmt: skip
    empty = (
        "SELECT empty_scan_count, start_lsn FROM sys.dm_cdc_log_scan_sessions WHERE session_id > 0"
        " AND tran_count = 0 AND empty_scan_count > 0"
    )
    wait_until(lambda: any(count > 1 for count, _ in source.admin.rows(empty)))
    (row,) = source.admin.rows(empty)
    assert row[1] == "00000000:00000000:0000"


def test_job_table_is_missing_while_no_database_has_cdc(server: Server) -> None:
    """See docs/reference/sqlserver_cdc.md, "Metadata tables": real servers have it only while there is a database with
    change data capture."""
    master = server.connect("master")
    enabled = master.rows("SELECT 1 FROM sys.databases WHERE is_cdc_enabled = 1")
    reply = master.send("SELECT COUNT(*) FROM msdb.dbo.cdc_jobs")
    master.close()
    assert [m.number for m in reply.errors] == ([] if enabled else [208])
