"""Published answers to windows, cleanup, instances, jobs and rights. Keys are those of docs/reference/sqlserver_cdc.md,
"Published transcripts"."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc_database import CdcDatabase, shape
from emulator_process import Emulator

_CALL = "SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_t({0}, {1}, N'{2}')"
_PASSWORD = "Reader-1-Password"
_LOW, _HIGH = "sys.fn_cdc_get_min_lsn(N'dbo_t')", "sys.fn_cdc_get_max_lsn()"


@pytest.fixture
def table(database: CdcDatabase) -> CdcDatabase:
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10))")
    database.enable("t")
    database.run("INSERT dbo.t VALUES (1, 'a')", "UPDATE dbo.t SET v = 'b'", "DELETE dbo.t")
    database.scan()
    return database


@pytest.mark.parametrize(
    ("low", "high", "option"),
    [
        ("0x00000000000000000001", _HIGH, "all"),
        (_LOW, "0xFFFFFFFFFFFFFFFFFFFF", "all"),
        (_LOW, f"sys.fn_cdc_increment_lsn({_HIGH})", "all"),
        ("NULL", _HIGH, "all"),
        (_LOW, "NULL", "all"),
        (_HIGH, _LOW, "all"),
        (_LOW, _HIGH, "everything"),
    ],
)
def test_g44_invalid_window_is_error_313(table: CdcDatabase, low: str, high: str, option: str) -> None:
    """G44 (R) FAB 2.1, CTEST; docs/reference/sqlserver_cdc.md, "Windows"."""
    assert table.error_of(_CALL.format(low, high, option)) == 313
    net = _CALL.replace("all_changes", "net_changes").format(low, high, option)
    assert table.error_of(net) == 313


def test_g44_option_is_trimmed_and_not_case_sensitive(table: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Change functions"."""
    assert len(table.query(_CALL.format(_LOW, _HIGH, " ALL Update OLD "))) == 4


def test_g44_change_table_is_read_without_any_window(table: CdcDatabase) -> None:
    """G44 (R): a direct read is never validated."""
    rows = table.query(
        "SELECT * FROM cdc.dbo_t_CT WHERE [__$start_lsn] BETWEEN 0x00000000000000000000 AND 0xFFFFFFFFFFFFFFFFFFFF"
    )
    assert len(rows) == 4


def test_g46_cleanup_of_two_tables_trims_the_time_line_only_below_both(database: CdcDatabase) -> None:
    """G46 (T) MCP."""
    for name in ("a", "b"):
        database.run(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY)")
        database.enable(name)
    database.run(
        "INSERT dbo.a VALUES (1)",
        "WAITFOR DELAY '00:00:00.010'",
        "INSERT dbo.a VALUES (2)",
        "WAITFOR DELAY '00:00:00.010'",
        "INSERT dbo.a VALUES (3)",
        "WAITFOR DELAY '00:00:00.010'",
        "INSERT dbo.b VALUES (1)",
    )
    database.scan()
    oldest = database.query("SELECT MIN(tran_end_time) AS t FROM cdc.lsn_time_mapping")[0]["t"]
    mark = database.scalar(_HIGH)
    below = f"SELECT COUNT(*) AS n FROM cdc.lsn_time_mapping WHERE start_lsn < 0x{mark.hex()}"
    database.run(f"EXEC sys.sp_cdc_cleanup_change_table N'dbo_a', 0x{mark.hex()}")
    assert database.query(below)[0]["n"] > 0
    assert database.change_table("dbo_a") == []
    database.run(f"EXEC sys.sp_cdc_cleanup_change_table N'dbo_b', 0x{mark.hex()}")
    assert database.query(below)[0]["n"] == 0
    row = database.query(
        "SELECT sys.fn_cdc_map_time_to_lsn('largest less than or equal', CAST(%s AS datetime)) AS lsn", (oldest,)
    )
    assert row[0]["lsn"] is None


def test_cleanup_refuses_what_is_no_entry_and_never_lowers(table: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Cleanup"."""
    clean = "EXEC sys.sp_cdc_cleanup_change_table N'dbo_t', {0}"
    assert table.error_of(clean.format("0x00000022000000010001")) == 22964
    assert table.error_of(clean.format("NULL, 0")) == 22850
    first, last = table.scalar(_LOW), table.scalar(_HIGH)
    table.run(clean.format(f"0x{last.hex()}"))
    raised = table.scalar(_LOW)
    assert first < raised <= last
    table.run(clean.format("NULL"))
    assert table.scalar(_LOW) == raised
    assert table.error_of(_CALL.format(f"0x{first.hex()}", _HIGH, "all")) == 313


def test_g41_two_instances_and_no_third(database: CdcDatabase) -> None:
    """G41 (R) FAB 2.2; MCP23 for the command ids."""
    database.run("CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY, amount decimal(18,4))")
    database.enable("orders")
    database.run("INSERT dbo.orders VALUES (1, 1)", "ALTER TABLE dbo.orders ADD region nvarchar(10)")
    database.enable("orders", capture_instance="N'dbo_orders_v2'")
    database.run(
        "BEGIN TRAN; INSERT dbo.orders VALUES (3, 5, N'eu'); UPDATE dbo.orders SET amount = 6 WHERE id = 3;"
        " DELETE dbo.orders WHERE id = 3; COMMIT"
    )
    database.scan()
    old, new = database.change_table("dbo_orders"), database.change_table("dbo_orders_v2")
    assert [r["__$operation"] for r in old] == [2, 2, 3, 4, 1]
    assert shape(new, "id", "region") == [
        (2, "07", 3, "eu"),
        (3, "02", 3, "eu"),
        (4, "02", 3, "eu"),
        (1, "07", 3, "eu"),
    ]
    assert [r["__$command_id"] for r in old[1:]] == [1, 3, 3, 5]
    assert [r["__$command_id"] for r in new] == [2, 4, 4, 6]
    assert [(r["__$start_lsn"], r["__$seqval"]) for r in old[1:]] == [(r["__$start_lsn"], r["__$seqval"]) for r in new]
    assert database.scalar("sys.fn_cdc_get_min_lsn(N'dbo_orders_v2')") > old[0]["__$start_lsn"]
    assert database.query("SELECT end_lsn FROM cdc.change_tables") == [{"end_lsn": None}] * 2
    third = "EXEC sys.sp_cdc_enable_table N'dbo', N'orders', N'v3', @role_name = NULL"
    assert database.error_of(third) == 22962


def test_g49_jobs_have_the_defaults_of_2022(database: CdcDatabase) -> None:
    """G49 (R) SCR, the older server."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    rows = database.query("EXEC sys.sp_cdc_help_jobs")
    settings = ("job_type", "pollinginterval", "maxtrans", "maxscans", "continuous", "retention", "threshold")
    assert [tuple(row[s] for s in settings) for row in rows] == [
        ("capture", 5, 500, 10, True, 0, 0),
        ("cleanup", 0, 0, 0, False, 4320, 5000),
    ]
    assert len(database.query("SELECT * FROM msdb.dbo.cdc_jobs WHERE database_id = DB_ID()")) == 2


def test_stop_of_a_stopped_job_is_refused_by_the_agent(table: CdcDatabase) -> None:
    """G50 (R) FAB 10.2."""
    assert table.error_of("EXEC sys.sp_cdc_stop_job") == 22022
    table.run("EXEC sys.sp_cdc_start_job")
    assert table.error_of("EXEC sys.sp_cdc_start_job") == 22022


def test_min_lsn_is_null_until_the_enabling_is_captured_though_help_shows_it(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Reports", "Scalar functions"."""
    database.run("CREATE TABLE dbo.a (id int NOT NULL PRIMARY KEY)", "CREATE TABLE dbo.b (id int NOT NULL PRIMARY KEY)")
    database.enable("a")
    database.run("EXEC sys.sp_cdc_enable_table N'dbo', N'b', @role_name = NULL")
    assert database.scalar("sys.fn_cdc_get_min_lsn(N'dbo_b')") is None
    shown = database.query("EXEC sys.sp_cdc_help_change_data_capture N'dbo', N'b'")[0]["start_lsn"]
    database.scan()
    assert database.scalar("sys.fn_cdc_get_min_lsn(N'DBO_B')") == shown
    assert database.scalar("sys.fn_cdc_get_min_lsn(N'nothing')") == bytes(10)
    assert database.query(f"SELECT tran_id FROM cdc.lsn_time_mapping WHERE start_lsn = 0x{shown.hex()}") == [
        {"tran_id": b"\0"}
    ]


def _grant(database: CdcDatabase, emulator: Emulator, login: str, *grants: str) -> Any:
    database.run(
        f"CREATE LOGIN {login} WITH PASSWORD = '{_PASSWORD}', CHECK_POLICY = OFF",
        f"CREATE USER {login} FOR LOGIN {login}",
        *(f"GRANT SELECT ON {what} TO {login}" for what in grants),
    )
    return replace(emulator, user=login, password=_PASSWORD).connect_pymssql(database.name, autocommit=True)


def test_g52_select_on_the_source_opens_functions_and_procedures_but_no_tables(
    table: CdcDatabase, emulator: Emulator
) -> None:
    """G52 (T) MCP9/MCP23."""
    with _grant(table, emulator, "reader_source", "dbo.t") as connection:
        reader = CdcDatabase(table.name, connection)
        assert len(reader.query("EXEC sys.sp_cdc_help_change_data_capture")) == 1
        assert len(reader.query("EXEC sys.sp_cdc_get_captured_columns N'dbo_t'")) == 2
        assert len(reader.query(_CALL.format(_LOW, _HIGH, "all"))) == 3
        assert len(reader.net_changes("dbo_t")) == 0
        assert reader.query("SELECT COUNT(*) AS n FROM cdc.lsn_time_mapping")[0]["n"] > 0
        for denied in ("dbo_t_CT", "change_tables", "captured_columns", "index_columns", "ddl_history"):
            assert reader.error_of(f"SELECT * FROM cdc.{denied}") == 229
        assert reader.error_of("EXEC sys.sp_cdc_help_jobs") == 22904


def test_g52_select_on_the_change_table_alone_opens_only_it(table: CdcDatabase, emulator: Emulator) -> None:
    """G52 (T) MCP9/MCP23."""
    with _grant(table, emulator, "reader_ct", "cdc.dbo_t_CT") as connection:
        reader = CdcDatabase(table.name, connection)
        assert len(reader.query("SELECT * FROM cdc.dbo_t_CT")) == 4
        assert reader.query("EXEC sys.sp_cdc_help_change_data_capture") == []
        assert reader.error_of("EXEC sys.sp_cdc_get_captured_columns N'dbo_t'") == 22981
        assert reader.scalar(_LOW) == bytes(10)
        assert reader.error_of(_CALL.format("0x01", _HIGH, "all")) == 229


def test_gating_role_is_needed_in_addition_to_select(database: CdcDatabase, emulator: Emulator) -> None:
    """See docs/reference/sqlserver_cdc.md, "Enabling a table", "Reports"."""
    database.run(
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10))",
        "EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = N'cdc_readers'",
    )
    database.run("EXEC sys.sp_cdc_stop_job")
    database.scan()
    with _grant(database, emulator, "reader_gated", "dbo.t") as connection:
        reader = CdcDatabase(database.name, connection)
        assert reader.error_of("EXEC sys.sp_cdc_get_captured_columns N'dbo_t'") == 22981
        database.run("ALTER ROLE cdc_readers ADD MEMBER reader_gated")
        assert len(reader.query("EXEC sys.sp_cdc_get_captured_columns N'dbo_t'")) == 2
