"""The emulator's clock: everything that returns the time follows it, and it comes back."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import pytest

from cdc_database import CdcDatabase, wait_until
from emulator_process import Emulator

NEAR = timedelta(minutes=1)


def test_every_function_of_time_follows_the_clock(shop: CdcDatabase) -> None:
    shop.run("EXEC emulator.set_clock @now = '2031-05-06T07:08:09'")
    (row,) = shop.query(
        "SELECT GETDATE() AS a, SYSDATETIME() AS b, CURRENT_TIMESTAMP AS c,"
        " CAST(SYSDATETIMEOFFSET() AS datetime2) AS d,"
        " DATEADD(second, DATEDIFF(second, GETUTCDATE(), GETDATE()), SYSUTCDATETIME()) AS e"
    )
    for name, value in row.items():
        assert timedelta(0) <= value - datetime(2031, 5, 6, 7, 8, 9) < NEAR, name


def test_clock_runs_on_and_defaults_and_catalog_follow_it_on_every_connection(
    shop: CdcDatabase, controlled_emulator: Emulator
) -> None:
    with controlled_emulator.connect_pymssql("master", autocommit=True) as other, other.cursor() as cursor:
        cursor.execute("EXEC emulator.set_clock '2031-05-06'")
    shop.run("EXEC master.emulator.advance_clock @seconds = 86400")
    shop.run("INSERT dbo.t (id, v) VALUES (1, 'a')", "CREATE TABLE dbo.late (id int)")
    (row,) = shop.query(
        "SELECT at, (SELECT create_date FROM sys.tables WHERE name = 'late') AS made, SYSDATETIME() AS now FROM dbo.t"
    )
    assert datetime(2031, 5, 7) <= row["at"] <= row["now"] < datetime(2031, 5, 7) + NEAR
    assert abs(row["made"] - row["at"]) < NEAR


def test_change_shows_the_time_that_the_clock_had_when_it_was_committed(shop: CdcDatabase) -> None:
    shop.run("EXEC sys.sp_cdc_stop_job", "EXEC emulator.set_clock '2031-05-06'", "INSERT dbo.t (id) VALUES (1)")
    shop.run("EXEC emulator.advance_clock 7200", "INSERT dbo.t (id) VALUES (2)")
    shop.run("EXEC emulator.set_clock '2030-01-01'", "INSERT dbo.t (id) VALUES (3)")
    shop.scan()
    rows = shop.query(
        "SELECT c.id, m.tran_begin_time AS began, m.tran_end_time AS ended FROM cdc.dbo_t_CT c"
        " JOIN cdc.lsn_time_mapping m ON m.start_lsn = c.[__$start_lsn] ORDER BY c.id"
    )
    expected = [datetime(2031, 5, 6), datetime(2031, 5, 6, 2), datetime(2030, 1, 1)]
    for row, at in zip(rows, expected, strict=True):
        assert at <= row["began"] <= row["ended"] < at + NEAR


def test_reset_clock_shows_real_time_again(shop: CdcDatabase) -> None:
    shop.run("EXEC emulator.set_clock '2001-01-01'", "EXEC emulator.reset_clock")
    assert abs(shop.scalar("SYSDATETIME()") - datetime.now()) < NEAR


def test_waiting_for_a_time_of_day_ends_when_the_clock_shows_it(
    shop: CdcDatabase, controlled_emulator: Emulator
) -> None:
    shop.run("EXEC emulator.set_clock '2031-05-06T01:00:00'")
    answered: list[datetime] = []

    def wait() -> None:
        with controlled_emulator.connect_pymssql(shop.name, autocommit=True) as other, other.cursor() as cursor:
            cursor.execute("WAITFOR TIME '02:00:00'; SELECT SYSDATETIME()")
            answered.append(cursor.fetchone()[0])

    waiting = "SELECT 1 AS x FROM sys.dm_exec_sessions WHERE database_id = DB_ID() AND session_id <> @@SPID"
    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: shop.query(waiting) != [])
    shop.run("EXEC emulator.advance_clock 3595")
    thread.join(60)
    (shown,) = answered
    assert datetime(2031, 5, 6, 2) <= shown < datetime(2031, 5, 6, 2) + NEAR


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("emulator.set_clock NULL", 49998),
        ("emulator.set_clock '1753-01-01'", 49998),
        ("emulator.set_clock 'soon'", 8114),
        ("emulator.set_clock", 201),
        ("emulator.advance_clock -1", 49998),
        ("emulator.advance_clock 1e300", 49998),
        ("emulator.advance_clock @hours = 1", 8145),
        ("emulator.stop_clock", 2812),
        ("set_clock '2031-01-01'", 2812),
        ("sys.set_clock '2031-01-01'", 2812),
    ],
)
def test_call_that_means_nothing_is_refused(shop: CdcDatabase, call: str, number: int) -> None:
    assert shop.error_of(f"EXEC {call}") == number
    assert abs(shop.scalar("SYSDATETIME()") - datetime.now()) < NEAR


def test_nobody_but_a_sysadmin_may_move_the_clock(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    import pymssql

    shop.run(
        "CREATE LOGIN reader WITH PASSWORD = 'a-Password-1'",
        "CREATE USER reader FOR LOGIN reader",
        "ALTER ROLE db_owner ADD MEMBER reader",
    )
    try:
        with pymssql.connect(
            controlled_emulator.host, "reader", "a-Password-1", shop.name, port=str(controlled_emulator.port)
        ) as connection:
            with pytest.raises(pymssql.Error) as refused, connection.cursor() as cursor:
                cursor.execute("EXEC emulator.advance_clock 3600")
            assert refused.value.args[0] == 229
    finally:
        shop.run("DROP USER reader", "DROP LOGIN reader")
