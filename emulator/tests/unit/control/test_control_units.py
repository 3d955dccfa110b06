"""Which statements a fault meets and how often; what the clock said in the past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sqlserver_emulator.clock import LoggedClock
from sqlserver_emulator.control.statement_faults import writes_to_the_log
from sqlserver_emulator.faults import CaptureFaults, Fault, FaultBoard, FaultKind, Match


@pytest.mark.parametrize(
    ("table", "statement", "fits"),
    [
        ("Orders", "SELECT * FROM dbo.orders", True),
        ("dbo.Orders", 'UPDATE [dbo] . "Orders" SET a = 1', True),
        ("[dbo].[Orders]", "DELETE dbo.Orders", True),
        ("dbo.Orders", "SELECT * FROM Orders", False),
        ("dbo.Orders", "SELECT * FROM sales.Orders", False),
        ("Orders", "SELECT * FROM dbo.Orders2, dbo.OldOrders, @Orders, #Orders", False),
        ("fn_cdc_get_all_changes_dbo_t", "SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_t(@a, @b, N'all')", True),
    ],
)
def test_table_fits_where_its_name_is_in_the_statement(table: str, statement: str, fits: bool) -> None:
    assert Match(table=table).fits(statement, frozenset(["shop"]), "sa") is fits


def test_everything_that_is_given_has_to_fit() -> None:
    shop = frozenset(["master", "shop"])
    match = Match(database="Shop", login="SA", table="t", text="Order By")
    assert match.fits("SELECT 1 FROM t ORDER BY 1", shop, "sa")
    assert not match.fits("SELECT 1 FROM t ORDER BY 1", frozenset(["other"]), "sa")
    assert not match.fits("SELECT 1 FROM t ORDER BY 1", shop, "loader")
    assert not match.fits("SELECT 1 FROM t", shop, "sa")
    assert Match().fits("PRINT 1", frozenset(["master"]), "anybody")


def test_fault_happens_as_often_as_requested_and_then_is_gone() -> None:
    board = FaultBoard()
    twice = board.add(Fault(FaultKind.STATEMENT_ERROR, times=2))
    always = board.add(Fault(FaultKind.LOG_FULL))
    assert [board.happens(twice) for _ in range(3)] == [True, True, False]
    assert [board.happens(always) for _ in range(3)] == [True, True, True]
    assert board.active == (always,)
    assert board.clear() == (always,)
    assert not board.happens(always)
    assert board.statement_faults == ()


def test_capture_faults_replace_one_another_in_their_own_database_only() -> None:
    board = FaultBoard()
    for seconds, database_id in ((5.0, 7), (6.0, 7), (9.0, 8)):
        board.add(Fault(FaultKind.CAPTURE_DELAY, value=seconds, database_id=database_id))
    failure = board.add(Fault(FaultKind.CAPTURE_FAILURE, detail="down", database_id=7))
    assert board.of_capture(7) == CaptureFaults(delay_seconds=6.0, failure="down")
    assert board.of_capture(8) == CaptureFaults(delay_seconds=9.0)
    assert board.of_capture(9) == CaptureFaults()
    board.clear(failure.fault_id)
    assert board.of_capture(7).failure is None
    assert board.statement_faults == ()


@pytest.mark.parametrize(
    ("statement", "writes"),
    [
        ("insert dbo.t VALUES (1)", True),
        ("WITH c AS (SELECT 1 AS x) INSERT INTO t SELECT x FROM c", True),
        ("SELECT a INTO dbo.n FROM t", True),
        ("TRUNCATE TABLE dbo.t", True),
        ("ALTER TABLE dbo.t ADD x int", True),
        ("SELECT a FROM t", False),
        ("INSERT INTO #t VALUES (1)", False),
        ("DELETE FROM [#t]", False),
        ("INSERT @v SELECT 1", False),
        ("CREATE TABLE #t (id int)", False),
    ],
)
def test_writes_to_tempdb_are_not_writes_to_the_log(statement: str, writes: bool) -> None:
    assert writes_to_the_log(statement) is writes


def test_logged_clock_shows_each_moment_with_the_shift_of_its_day_and_reads_again_for_newer_ones() -> None:
    changes: list[tuple[int, int | None]] = [(100, 1000), (200, -50)]
    readings: list[int] = []

    def fetch(_sql: str, _parameters: Sequence[object]) -> Sequence[tuple[Any, ...]]:
        readings.append(300 + len(readings))
        return [*changes, (readings[-1], None)]

    clock = LoggedClock(fetch)
    assert not clock.may_go_back
    assert [clock.shown(moment) for moment in (99, 100, 199, 200, 299)] == [99, 1100, 1199, 150, 249]
    assert clock.may_go_back
    assert len(readings) == 1
    changes.append((300, 0))
    assert clock.shown(300) == 300
    assert len(readings) == 2
