"""A restore moves the LSN backwards: what a reader that was ahead must notice."""

from __future__ import annotations

import pytest

from cdc_database import CdcDatabase, wait_until
from emulator_process import Emulator


def captured(shop: CdcDatabase) -> list[int]:
    return [row["id"] for row in shop.change_table("dbo_t")]


def insert(shop: CdcDatabase, *ids: int) -> None:
    shop.run(*(f"INSERT dbo.t (id, v) VALUES ({number}, 'a')" for number in ids), "EXEC emulator.run_capture")


@pytest.mark.parametrize("is_running", [True, False])
def test_restore_takes_back_changes_entries_and_lsns_which_are_used_again(shop: CdcDatabase, is_running: bool) -> None:
    if not is_running:
        shop.run("EXEC sys.sp_cdc_stop_job")
    insert(shop, 1, 2)
    point = shop.scalar("sys.fn_cdc_get_max_lsn()")
    # Some 20 MB of the log: more than PostgreSQL writes meanwhile by itself, for the first touch of pages and for the
    # vacuum of tables. That of many rows would be as large as the rows, so they are in a table that is gone.
    shop.run("CREATE TABLE dbo.filler (v nvarchar(1900))")
    shop.run("INSERT dbo.filler SELECT REPLICATE(N'x', 1900) FROM GENERATE_SERIES(1, 10000)", "DROP TABLE dbo.filler")
    insert(shop, 3)
    ahead = shop.query("SELECT start_lsn FROM cdc.lsn_time_mapping ORDER BY start_lsn DESC")[0]["start_lsn"]
    shop.run(f"EXEC emulator.restore_database @to_lsn = 0x{point.hex()}")
    assert captured(shop) == [1, 2]
    assert shop.scalar("sys.fn_cdc_get_max_lsn()") == point < ahead
    assert shop.query("SELECT id FROM dbo.t ORDER BY id") == [{"id": 1}, {"id": 2}]
    assert (
        shop.error_of(f"SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_t(0x{point.hex()}, 0x{ahead.hex()}, N'all')")
        == 313
    )
    insert(shop, 31)
    wait_until(lambda: captured(shop) == [1, 2, 31])
    again = shop.change_table("dbo_t")[-1]
    assert point < again["__$start_lsn"] < ahead
    assert point < again["__$seqval"] < again["__$start_lsn"]
    assert [row["id"] for row in shop.all_changes("dbo_t")] == [1, 2, 31]


def test_instances_and_second_restores_follow_the_restored_lsns(shop: CdcDatabase) -> None:
    insert(shop, 1)
    point = shop.scalar("sys.fn_cdc_get_max_lsn()")
    insert(shop, *range(2, 20))
    for again in (100, 200):
        shop.run(f"EXEC emulator.restore_database 0x{point.hex()}")
        insert(shop, again)
        assert captured(shop) == [1, again]
    shop.run("CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY)")
    shop.run("EXEC sys.sp_cdc_enable_table N'dbo', N'u', @role_name = NULL", "INSERT dbo.u VALUES (7)")
    shop.run("EXEC emulator.run_capture")
    assert [row["id"] for row in shop.all_changes("dbo_u")] == [7]


def test_idle_row_comes_after_the_restored_lsn(shop: CdcDatabase) -> None:
    shop.run("EXEC sys.sp_cdc_stop_job")
    insert(shop, 1)
    point = shop.scalar("sys.fn_cdc_get_max_lsn()")
    insert(shop, 2)
    shop.run(f"EXEC emulator.restore_database 0x{point.hex()}", "EXEC emulator.advance_clock 301")
    shop.run("EXEC emulator.run_capture")
    newest, before = shop.query("SELECT TOP 2 start_lsn, tran_id FROM cdc.lsn_time_mapping ORDER BY start_lsn DESC")
    assert before["start_lsn"] == point < newest["start_lsn"]
    assert newest["tran_id"] == b"\0"


def test_restore_to_where_nothing_was_is_refused(shop: CdcDatabase) -> None:
    insert(shop, 1)
    for call in (
        "restore_database 0x00000000000000000001",
        "restore_database 0xFFFFFFFFFFFFFFFFFFFF",
        "restore_database NULL",
    ):
        assert shop.error_of(f"EXEC emulator.{call}") == 49998
    shop.run("BEGIN TRAN", "INSERT dbo.t (id) VALUES (2)")
    assert shop.error_of("EXEC emulator.restore_database 0x00") == 49998
    shop.run("ROLLBACK")
    assert captured(shop) == [1]


def test_restore_is_refused_while_a_writer_is_under_way(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    insert(shop, 1)
    point = shop.scalar("sys.fn_cdc_get_max_lsn()")
    with controlled_emulator.connect_pymssql(shop.name) as writer, writer.cursor() as cursor:
        cursor.execute("INSERT dbo.t (id) VALUES (2)")
        assert shop.error_of(f"EXEC emulator.restore_database 0x{point.hex()}") == 49998
        writer.commit()
    shop.run("EXEC emulator.run_capture")
    assert captured(shop) == [1, 2]
