"""Where capture begins and ends: enabling and disabling next to writers, in transactions, by name and by right."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database, shape, wait_until
from emulator_process import Emulator


@pytest.fixture
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        yield made


def test_capture_job_fills_the_change_table_by_itself(database: CdcDatabase) -> None:
    database.run(
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)",
        "EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL",
        "INSERT dbo.t VALUES (1)",
    )
    wait_until(lambda: len(database.change_table("dbo_t")) == 1)
    wait_until(lambda: database.query("SELECT * FROM sys.dm_cdc_log_scan_sessions WHERE tran_count > 0") != [])


def test_stopped_job_loses_nothing_and_catches_up_when_started(database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    database.run(*(f"INSERT dbo.t VALUES ({i})" for i in range(20)))
    assert database.change_table("dbo_t") == []
    database.run("EXEC sys.sp_cdc_start_job")
    wait_until(lambda: len(database.change_table("dbo_t")) == 20)
    assert database.error_of("EXEC sys.sp_cdc_scan") == 22903


def test_enabling_in_a_transaction_captures_only_what_comes_after_it(database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", "CREATE TABLE dbo.other (id int)")
    database.enable("other")
    database.run(
        "BEGIN TRAN; INSERT dbo.t VALUES (1);"
        " EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL; INSERT dbo.t VALUES (2); COMMIT",
        "INSERT dbo.t VALUES (3)",
    )
    database.scan()
    assert [row["id"] for row in database.change_table("dbo_t")] == [2, 3]
    low = database.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')")
    assert all(row["__$start_lsn"] >= low for row in database.change_table("dbo_t"))


def test_rolled_back_enabling_leaves_nothing(database: CdcDatabase) -> None:
    database.run(
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)",
        "BEGIN TRAN; EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL; ROLLBACK",
        "INSERT dbo.t VALUES (1)",
    )
    assert database.query("EXEC sys.sp_cdc_help_change_data_capture") == []
    assert database.query("SELECT is_tracked_by_cdc FROM sys.tables WHERE name = N't'") == [
        {"is_tracked_by_cdc": False}
    ]
    assert database.error_of("SELECT * FROM cdc.dbo_t_CT") == 208


def test_enabling_a_database_in_an_open_transaction_does_not_wait_for_it(emulator: Emulator) -> None:
    with emulator.connect_pymssql("Test", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE EnabledInside")
        cursor.execute("USE EnabledInside")
        cursor.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
        cursor.execute(
            "BEGIN TRAN; INSERT dbo.t VALUES (1); EXEC sys.sp_cdc_enable_db;"
            " EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL; INSERT dbo.t VALUES (2); COMMIT"
        )
        inside = CdcDatabase("EnabledInside", connection)
        wait_until(lambda: [row["id"] for row in inside.change_table("dbo_t")] == [2])
        cursor.execute("USE master")
        cursor.execute("DROP DATABASE EnabledInside")


def test_enabling_in_parallel_with_a_writer_misses_no_commit_after_its_start(
    database: CdcDatabase, emulator: Emulator
) -> None:
    """Every row is either in the table when the instance begins or in the change table, and none is in both."""
    database.run("CREATE TABLE dbo.t (id int IDENTITY PRIMARY KEY)", "CREATE TABLE dbo.first (id int)")
    database.enable("first")
    ended = threading.Event()

    def write() -> None:
        with emulator.connect_pymssql(database.name, autocommit=True) as connection, connection.cursor() as cursor:
            while not ended.is_set():
                cursor.execute("INSERT dbo.t DEFAULT VALUES")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: database.scalar("(SELECT COUNT(*) FROM dbo.t)") > 20)
        with emulator.connect_pymssql(database.name) as connection, connection.cursor() as cursor:
            cursor.execute("EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL")
            # The table is locked against writers until the end of this transaction: these are the rows before it.
            cursor.execute("SELECT COUNT(*) FROM dbo.t")
            (before,) = cursor.fetchone()
            connection.commit()
        wait_until(lambda: database.scalar("(SELECT COUNT(*) FROM dbo.t)") > before + 20)
    finally:
        ended.set()
        writer.join()
    database.scan()
    captured = [row["id"] for row in database.change_table("dbo_t")]
    assert captured == list(range(before + 1, before + 1 + len(captured)))
    assert len(captured) + before == database.scalar("(SELECT COUNT(*) FROM dbo.t)")


def test_disabling_the_last_instance_ends_tracking_and_readers_get_208(database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    assert database.error_of("EXEC sys.sp_cdc_disable_table N'dbo', N't', N'none'") == 22960
    database.run("EXEC sys.sp_cdc_disable_table N'dbo', N't', N'all'", "TRUNCATE TABLE dbo.t")
    assert database.error_of("SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_t(0x01, 0x01, N'all')") == 208
    assert database.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == bytes(10)
    assert database.query("SELECT * FROM cdc.lsn_time_mapping") == []
    assert database.error_of("EXEC sys.sp_cdc_disable_table N'dbo', N't', N'dbo_t'") == 22985


def test_disabled_database_has_no_trace_of_cdc_and_can_be_enabled_again(database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    database.run("INSERT dbo.t VALUES (1)", "EXEC sys.sp_cdc_disable_db")
    assert database.error_of("SELECT * FROM cdc.change_tables") == 208
    assert database.error_of("SELECT sys.fn_cdc_get_max_lsn()") == 208
    assert database.error_of("EXEC sys.sp_cdc_help_change_data_capture") == 22901
    assert not database.query("SELECT is_cdc_enabled FROM sys.databases WHERE name = DB_NAME()")[0]["is_cdc_enabled"]
    database.run("EXEC sys.sp_cdc_disable_db", "EXEC sys.sp_cdc_enable_db", "EXEC sys.sp_cdc_enable_db")
    database.is_job_stopped = False
    database.enable("t")
    database.run("INSERT dbo.t VALUES (2)")
    database.scan()
    assert shape(database.change_table("dbo_t"), "id") == [(2, "01", 2)]


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ("NULL, N't', @role_name = NULL", 22963),
        ("N'dbo', N'', @role_name = NULL", 22963),
        ("N'dbo', N'absent', @role_name = NULL", 22931),
        ("N'cdc', N'change_tables', @role_name = NULL", 22974),
        ("N'dbo', N't', @role_name = N''", 22907),
        (f"N'dbo', N't', N'{'x' * 101}', @role_name = NULL", 22927),
        ("N'dbo', N'heap', @supports_net_changes = 1, @role_name = NULL", 22939),
        ("N'dbo', N't', @role_name = NULL, @index_name = N'absent'", 22928),
        ("N'dbo', N't', @role_name = NULL, @index_name = N'ix_plain'", 22929),
        ("N'dbo', N't', @role_name = NULL, @index_name = N'ux_nullable'", 22838),
        ("N'dbo', N't', @role_name = NULL, @captured_column_list = N'id, absent'", 22930),
        ("N'dbo', N't', @role_name = NULL, @captured_column_list = N'[id'", 22965),
        ("N'dbo', N't', @supports_net_changes = 1, @role_name = NULL, @captured_column_list = N'v'", 22943),
        ("N'dbo', N't', @role_name = NULL, @filegroup_name = N'absent'", 22973),
        ("N'dbo', N'reserved', @role_name = NULL", 22975),
    ],
)
def test_bad_arguments_of_enable_table_are_refused_by_number(
    refusing: CdcDatabase, arguments: str, number: int
) -> None:
    assert refusing.error_of(f"EXEC sys.sp_cdc_enable_table {arguments}") == number


@pytest.fixture(scope="module")
def refusing(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v int, w int NOT NULL)",
            "CREATE INDEX ix_plain ON dbo.t (w)",
            "CREATE UNIQUE INDEX ux_nullable ON dbo.t (v)",
            "CREATE TABLE dbo.heap (id int)",
            "CREATE TABLE dbo.reserved (id int NOT NULL PRIMARY KEY, [__$operation] int)",
        )
        yield made


def test_unique_index_identifies_rows_where_there_is_no_primary_key(database: CdcDatabase) -> None:
    database.run(
        "CREATE TABLE dbo.t (a int NOT NULL, b int NOT NULL, v varchar(10))",
        "CREATE UNIQUE INDEX ux ON dbo.t (b, a)",
    )
    database.enable("t", index_name="N'ux'", supports_net_changes="1")
    database.run("INSERT dbo.t VALUES (1, 2, 'x')", "UPDATE dbo.t SET v = 'y'")
    database.scan()
    assert [(r["__$operation"], r["a"], r["v"]) for r in database.net_changes("dbo_t")] == [(2, 1, "y")]
    (shown,) = database.query("EXEC sys.sp_cdc_help_change_data_capture N'dbo', N't'")
    assert (shown["index_name"], shown["index_column_list"]) == ("ux", "[b], [a]")


def test_captured_column_list_limits_the_instance(database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, [a b] int, c int)")
    database.enable("t", captured_column_list="N'[a b], id'")
    database.run("INSERT dbo.t VALUES (1, 2, 3)", "UPDATE dbo.t SET c = 4", "UPDATE dbo.t SET [a b] = 5")
    database.scan()
    assert shape(database.change_table("dbo_t"), "id", "a b") == [(2, "03", 1, 2), (3, "02", 1, 2), (4, "02", 1, 5)]
    assert database.scalar("sys.fn_cdc_get_column_ordinal(N'dbo_t', N'a b')") == 2
    assert database.scalar("sys.fn_cdc_has_column_changed(N'dbo_t', N'a b', 0x02)") in (1, True)
    assert database.scalar("sys.fn_cdc_is_bit_set(1, 0x02)") in (0, False)


def test_lsn_arithmetic_wraps_and_keeps_null(database: CdcDatabase) -> None:
    assert database.scalar("sys.fn_cdc_increment_lsn(0x000000000000000000FF)") == bytes.fromhex("00000000000000000100")
    assert database.scalar("sys.fn_cdc_decrement_lsn(0x00000000000000000100)") == bytes.fromhex("000000000000000000FF")
    assert database.scalar("sys.fn_cdc_increment_lsn(0xFFFFFFFFFFFFFFFFFFFF)") == bytes(10)
    assert database.scalar("sys.fn_cdc_increment_lsn(NULL)") is None


def test_job_settings_change_and_are_checked(database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    database.run(
        "EXEC sys.sp_cdc_change_job N'capture', @maxtrans = 7, @pollinginterval = 1",
        "EXEC sys.sp_cdc_change_job N'cleanup', @retention = 60",
    )
    capture, cleanup = database.query("EXEC sys.sp_cdc_help_jobs")
    assert (capture["maxtrans"], capture["pollinginterval"], capture["continuous"]) == (7, 1, True)
    assert cleanup["retention"] == 60
    assert database.error_of("EXEC sys.sp_cdc_change_job N'capture', @retention = 5") == 22995
    assert database.error_of("EXEC sys.sp_cdc_change_job N'cleanup', @maxtrans = 5") == 22996
    assert database.error_of("EXEC sys.sp_cdc_change_job N'other'") == 22992
    database.run("EXEC sys.sp_cdc_drop_job N'cleanup'")
    assert database.error_of("EXEC sys.sp_cdc_start_job N'cleanup'") == 22997
