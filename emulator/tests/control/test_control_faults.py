"""Faults that a client meets: its connection cut, deadlocks, lock timeouts, slow statements, a full log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymssql
import pytds
import pytest

from cdc_database import CdcDatabase, Row, wait_until
from emulator_process import Emulator

ROWS = 20_000


def fill(shop: CdcDatabase, count: int) -> None:
    shop.run(f"INSERT dbo.t (id) SELECT value FROM GENERATE_SERIES(1, {count})")


@contextmanager
def reader(emulator: Emulator, shop: CdcDatabase) -> Iterator[Any]:
    with emulator.connect_pymssql(shop.name, autocommit=True) as connection, connection.cursor() as cursor:
        yield cursor


def rows_until_cut(emulator: Emulator, shop: CdcDatabase, sql: str) -> int:
    """How many rows came before the connection broke."""
    count = 0
    with reader(emulator, shop) as cursor:
        try:
            cursor.execute(sql)
            while cursor.fetchone() is not None:
                count += 1
        except pymssql.OperationalError:
            return count
    raise AssertionError("the connection was not cut")


@pytest.mark.parametrize(("stored", "after"), [(ROWS, 5_000), (ROWS, 3), (50, 50), (50, 0)])
def test_connection_is_cut_after_so_many_rows_and_the_next_one_is_whole(
    shop: CdcDatabase, controlled_emulator: Emulator, stored: int, after: int
) -> None:
    fill(shop, stored)
    shop.run(f"EXEC emulator.cut_connection @after_rows = {after}, @table = N'dbo.t'")
    assert len(shop.query("SELECT name FROM sys.tables")) >= 1
    assert rows_until_cut(controlled_emulator, shop, "SELECT id, v FROM [dbo].[t]") == after
    assert len(shop.query("SELECT id FROM dbo.t")) == stored
    assert shop.query("EXEC emulator.help_faults") == []


def test_result_that_ends_before_the_cut_leaves_the_fault_for_a_longer_one(
    shop: CdcDatabase, controlled_emulator: Emulator
) -> None:
    fill(shop, 100)
    shop.run("EXEC emulator.cut_connection 60, @times = 2, @text = N'from DBO.T'")
    assert len(shop.query("SELECT TOP 59 id FROM dbo.t")) == 59
    for left in (2, 1):
        assert shop.query("EXEC emulator.help_faults")[0]["times_left"] == left
        assert rows_until_cut(controlled_emulator, shop, "SELECT id FROM dbo.t") == 60
    assert len(shop.query("SELECT id FROM dbo.t")) == 100


def test_cut_connection_meets_only_the_login_it_is_meant_for(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    fill(shop, 10)
    shop.run("EXEC emulator.cut_connection 1, @times = 0, @login = N'loader'")
    assert len(shop.query("SELECT id FROM dbo.t")) == 10
    shop.run("EXEC emulator.clear_faults", "EXEC emulator.cut_connection 1, @times = 0, @login = N'SA'")
    for _ in range(2):
        assert rows_until_cut(controlled_emulator, shop, "SELECT id FROM dbo.t") == 1


def test_cut_connection_rolls_its_transaction_back(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    fill(shop, 10)
    shop.run("EXEC emulator.cut_connection 5, @text = N'ORDER BY id DESC'")
    assert rows_until_cut(
        controlled_emulator, shop, "BEGIN TRAN; DELETE dbo.t WHERE id = 1; SELECT id FROM dbo.t ORDER BY id DESC"
    )
    assert len(shop.query("SELECT id FROM dbo.t")) == 10


def test_deadlock_ends_the_transaction_of_the_next_statement_on_the_table_only(shop: CdcDatabase) -> None:
    shop.run("EXEC emulator.fail_statements @error = 1205, @table = N't'", "BEGIN TRAN", "CREATE TABLE dbo.tt (id int)")
    shop.run("INSERT dbo.tt VALUES (1)")
    assert shop.error_of("UPDATE dbo.t SET v = 'x'") == 1205
    assert shop.scalar("@@TRANCOUNT") == 0
    assert shop.scalar("OBJECT_ID('dbo.tt')") is None
    shop.run("UPDATE dbo.t SET v = 'x'")


def test_lock_timeouts_end_so_many_statements_and_not_their_transaction(shop: CdcDatabase) -> None:
    shop.run("EXEC emulator.fail_statements 1222, @times = 2, @text = N'select v'", "BEGIN TRAN")
    shop.run("INSERT dbo.t (id, v) VALUES (1, 'a')")
    assert [shop.error_of("SELECT v FROM dbo.t") for _ in range(2)] == [1222, 1222]
    assert shop.query("SELECT v FROM dbo.t") == [{"v": "a"}]
    assert shop.scalar("@@TRANCOUNT") == 1
    shop.run("ROLLBACK")


def test_error_can_be_caught_as_a_real_one(shop: CdcDatabase) -> None:
    shop.run("EXEC emulator.fail_statements @error = 1205, @table = N'dbo.t'")
    caught = (
        "BEGIN TRY SELECT id FROM dbo.t END TRY BEGIN CATCH SELECT ERROR_NUMBER() AS n, XACT_STATE() AS x END CATCH"
    )
    assert shop.query(caught)[0]["n"] == 1205


def test_slow_statement_takes_its_time_and_can_be_cancelled(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    shop.run("EXEC emulator.slow_statements @seconds = 0.7, @table = N't'")
    began = time.monotonic()
    assert shop.query("SELECT id FROM dbo.t") == []
    assert time.monotonic() - began >= 0.7
    shop.run("EXEC emulator.slow_statements @seconds = 600, @table = N't'")
    sessions = "(SELECT COUNT(*) FROM sys.dm_exec_sessions WHERE program_name = N'impatient')"
    began = time.monotonic()
    # Not pymssql, whose timeout would be that of every connection in the process from then on.
    impatient = pytds.connect(
        controlled_emulator.host,
        shop.name,
        controlled_emulator.user,
        controlled_emulator.password,
        port=controlled_emulator.port,
        timeout=1,
        appname="impatient",
    )
    assert shop.scalar(sessions) == 1
    with impatient, impatient.cursor() as cursor, pytest.raises(pytds.tds_base.TimeoutError):
        cursor.execute("SELECT id FROM dbo.t")
    wait_until(lambda: shop.scalar(sessions) == 0)
    assert time.monotonic() - began < 60


def test_full_log_refuses_every_write_to_its_database_until_it_is_cleared(shop: CdcDatabase) -> None:
    shop.run("CREATE TABLE #own (id int)", "EXEC emulator.fill_log")
    writes = [
        "INSERT dbo.t (id) VALUES (1)",
        "DELETE dbo.t",
        "CREATE TABLE dbo.n (id int)",
        "SELECT id INTO dbo.n FROM t",
    ]
    assert [shop.error_of(write) for write in writes] == [9002] * 4
    shop.run("INSERT #own VALUES (1)", "DECLARE @v TABLE (id int); INSERT @v VALUES (1)")
    assert shop.query("SELECT id FROM dbo.t") == []
    shop.run("USE tempdb; SELECT 1 AS n INTO #other", f"USE [{shop.name}]", "EXEC emulator.clear_faults")
    shop.run("INSERT dbo.t (id) VALUES (1)")


def test_fault_of_a_database_meets_statements_that_name_it_from_elsewhere(shop: CdcDatabase) -> None:
    table = f"[{shop.name}].dbo.t"
    shop.run("EXEC emulator.fill_log", "USE master", "CREATE TABLE dbo.elsewhere (id int)")
    assert shop.error_of(f"INSERT {table} (id) VALUES (1)") == 9002
    assert shop.error_of(f"UPDATE x SET v = 'b' FROM {table} AS x") == 9002
    shop.run(f"INSERT dbo.elsewhere SELECT id FROM {table}", f"USE [{shop.name}]")
    shop.run("INSERT master.dbo.elsewhere VALUES (1)", "EXEC emulator.clear_faults")
    shop.run(f"EXEC emulator.fail_statements 1222, @database = N'{shop.name}'", "USE master", "SELECT 1 AS x")
    assert shop.error_of(f"SELECT id FROM {table}") == 1222
    shop.run("DROP TABLE dbo.elsewhere")


def test_bulk_load_meets_a_full_log_too(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    def load() -> None:
        connection = pytds.connect(
            controlled_emulator.host,
            shop.name,
            controlled_emulator.user,
            controlled_emulator.password,
            port=controlled_emulator.port,
            autocommit=True,
        )
        with connection, connection.cursor() as cursor:
            cursor.copy_to(data=[("1", "a")], table_or_view="t", schema="dbo", columns=["id", "v"])

    shop.run("EXEC emulator.fill_log")
    with pytest.raises(pytds.Error) as refusal:
        load()
    assert refusal.value.number == 9002
    shop.run("EXEC emulator.clear_faults")
    load()
    assert shop.query("SELECT id, v FROM dbo.t") == [{"id": 1, "v": "a"}]


def refused(shop: CdcDatabase, call: str) -> Row:
    try:
        shop.query(f"EXEC emulator.{call}")
    except pymssql.Error as error:
        return {"number": error.args[0], "text": error.args[1].decode()}
    raise AssertionError(f"not refused: {call}")


@pytest.mark.parametrize(
    ("call", "number", "said"),
    [
        ("fail_statements 547", 49998, "@error must be one of 1205, 1222, not 547."),
        ("fail_statements 1205, @times = -1", 49998, "@times must be from 0"),
        ("fail_statements 1205, @database = N'nowhere'", 49998, "There is no database 'nowhere'."),
        ("slow_statements @seconds = -0.5", 49998, "@seconds must be from 0"),
        ("cut_connection @after_rows = -1", 49998, "@after_rows must be from 0"),
        ("cut_connection @after_bytes = 1", 8145, "@after_bytes is not a parameter"),
        ("fill_log @database = N'nowhere'", 49998, "There is no database 'nowhere'."),
    ],
)
def test_fault_that_means_nothing_is_refused(shop: CdcDatabase, call: str, number: int, said: str) -> None:
    error = refused(shop, call)
    assert error["number"] == number
    assert said in error["text"]
    assert shop.query("EXEC emulator.help_faults") == []


def test_help_lists_every_procedure_with_its_parameters_and_defaults(shop: CdcDatabase) -> None:
    rows = shop.query("EXEC emulator.help")
    listed = {row["procedure_name"]: row["parameters"] for row in rows}
    assert listed["emulator.advance_clock"] == "@seconds float"
    assert listed["emulator.cut_connection"].startswith(
        "@after_rows bigint, @times int = 1, @table nvarchar(4000) = NULL"
    )
    assert [row["procedure_name"] for row in rows if not row["does"]] == []
