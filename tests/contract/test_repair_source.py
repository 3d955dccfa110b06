"""Repairs against a running source: cleanup that passes a watermark, a restored backup, a condition over its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import OperatorError, SourceRewoundError, WindowExpiredError
from floodmark.core.plan import WindowState
from floodmark.core.planning import known_positions
from floodmark.core.position import Lsn
from floodmark.core.schema import TableName
from floodmark.core.settings import FirstLoad, OnGap, PipelineSettings, TableSettings, WhenAdded
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.condition import parse_condition
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync.alerts import find_stopped
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from row_verification import reading, verify_tables

ORDERS, PLAIN = TableName("dbo", "Orders"), TableName("dbo", "Plain")
SETTINGS = PipelineSettings(
    "tests",
    tuple(
        TableSettings(
            name, TableName("shop", name.name.lower()), on_gap=OnGap.REPAIR, first_load=FirstLoad(chunk_rows=2)
        )
        for name in (ORDERS, PLAIN)
    ),
)


FAILING = replace(SETTINGS, tables=tuple(replace(table, on_gap=OnGap.FAIL) for table in SETTINGS.tables))


@dataclass
class Runner:
    database: CdcDatabase
    at: SqlServerConnection
    connection: WarehouseConnection

    @property
    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.connection)

    @property
    def planner(self) -> LoadPlanner:
        return LoadPlanner(SETTINGS, SqlServerSource(self.at), self.ledger, PostgresWarehouse(self.connection))

    def change(self, *statements: str) -> None:
        self.database.run(*statements)
        self.database.scan()

    def open(self, settings: PipelineSettings = SETTINGS) -> OpenResult:
        return open_window(settings, SqlServerSource(self.at), self.ledger)

    def run(self) -> OpenResult:
        return self.finish(self.open())

    def newest(self) -> Lsn:
        return Lsn(self.database.scalar("sys.fn_cdc_get_max_lsn()"))

    def watermark(self) -> Lsn | None:
        return self.ledger.read_tables("tests")[ORDERS].watermark

    def restore(self, point: Lsn, *, beyond: Lsn) -> None:
        """The state of then, and then other transactions, until the log is longer than it was."""
        self.database.run(f"EXEC emulator.restore_database @to_lsn = 0x{point.value.hex()}")
        assert self.newest() < beyond
        self.database.run("CREATE TABLE dbo.Ballast (N int)")
        for number in range(100, 120):
            # Some megabytes at a time: how much was logged before is up to the server (pages that are first written
            # after a checkpoint are logged whole), and may be a megabyte for a handful of rows.
            self.database.run("INSERT INTO dbo.Ballast SELECT value FROM GENERATE_SERIES(1, 50000)")
            self.change(f"INSERT INTO dbo.Orders VALUES ({number}, N'n', {number})")
            if self.newest() > beyond:
                self.database.run("DROP TABLE dbo.Ballast")
                return
        pytest.fail(f"the log did not come to {beyond}")

    def finish(self, opened: OpenResult) -> OpenResult:
        if opened.window_id is not None:
            stager = InProcessStager(reading(self.at))
            warehouse = PostgresWarehouse(self.connection)
            load_window(opened.window_id, self.ledger, warehouse, SqlServerSource(self.at), stager)
            self.ledger.mark_checked(opened.window_id)
            advance_window(opened.window_id, self.ledger, warehouse)
        return opened

    def differing(self) -> list[TableName]:
        results = verify_tables(SETTINGS, self.at, self.connection)
        return [each.source for each in results if not each.equal]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.connection.conninfo()) as session:
            return session.execute(sql).fetchall()


@pytest.fixture
def runner(emulator: Emulator, database: WarehouseConnection) -> Iterator[Runner]:
    with cdc_database(emulator) as source:
        at = SqlServerConnection(
            emulator.host, emulator.port, source.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
        )
        source.run(
            "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Region nvarchar(10), V int)",
            "CREATE TABLE dbo.Plain (Id int PRIMARY KEY, V int)",
            "INSERT INTO dbo.Orders VALUES (1, N'n', 1), (2, N's', 2), (3, N'n', 3), (4, N's', 4), (5, N'n', 5)",
            "INSERT INTO dbo.Plain VALUES (1, 1)",
        )
        source.enable("Orders")
        source.enable("Plain")
        made = Runner(source, at, database)
        made.run()
        yield made


def test_comparison_with_a_target_that_is_not_there_says_so(runner: Runner) -> None:
    never = replace(SETTINGS, tables=(replace(SETTINGS.tables[0], target=TableName("shop", "never")),))
    with pytest.raises(OperatorError, match=r"its target shop\.never does not exist"):
        list(verify_tables(never, runner.at, runner.connection))


def expire_orders(runner: Runner) -> None:
    """Changes of both tables, those of the first cleaned up."""
    runner.change("UPDATE dbo.Orders SET V = 20 WHERE Id = 2", "DELETE FROM dbo.Orders WHERE Id = 3")
    runner.change("INSERT INTO dbo.Orders VALUES (9, N'n', 9)", "INSERT INTO dbo.Plain VALUES (2, 2)")
    low = "0x" + runner.database.scalar("(SELECT MAX([__$start_lsn]) FROM cdc.dbo_Orders_CT)").hex()
    runner.database.run(f"EXEC sys.sp_cdc_cleanup_change_table N'dbo_Orders', {low}, 100")


def test_table_whose_changes_were_cleaned_up_is_repaired_while_the_other_goes_on(runner: Runner) -> None:
    expire_orders(runner)
    runner.run()
    assert runner.differing() == [ORDERS]
    assert runner.rows("SELECT verdict FROM floodmark.verdicts ORDER BY source_name") == [("repairing",), ("ready",)]
    # Both go on while the table is reloaded; nothing is captured meanwhile.
    runner.database.run("UPDATE dbo.Orders SET V = 10 WHERE Id = 1", "DELETE FROM dbo.Plain WHERE Id = 1")
    assert runner.finish(runner.planner.open_pending()).window_id is not None
    assert not runner.ledger.read_tables("tests")[ORDERS].consistent
    runner.database.scan()
    runner.run()
    assert runner.differing() == []
    (gap,) = runner.rows("SELECT after_lsn < to_lsn, after_at <= to_at, repaired_at IS NOT NULL FROM floodmark.gaps")
    assert gap == (True, True, True)
    assert runner.rows("SELECT sum(swept_rows)::int FROM floodmark.window_tables") == [(1,)]


def test_table_that_is_not_to_be_repaired_stops_alone_until_it_is_reloaded(runner: Runner) -> None:
    stopped_at = runner.watermark()
    expire_orders(runner)
    assert runner.finish(runner.open(FAILING)).window_id is not None
    assert (runner.differing(), runner.watermark()) == ([ORDERS], stopped_at)
    error = find_stopped(FAILING, runner.ledger)
    assert isinstance(error, WindowExpiredError)
    assert str(error).startswith("dbo.Orders: expired: changes after the watermark")
    assert f"floodmark reload {FAILING.name} {ORDERS}" in error.hint

    # Nothing is left for the others to do, but that the log has moved on.
    runner.change("UPDATE dbo.Orders SET V = 21 WHERE Id = 2")
    with pytest.raises(WindowExpiredError, match=r"dbo\.Orders"):
        runner.open(FAILING)
    assert runner.ledger.read_tables("tests")[PLAIN].watermark == runner.newest()
    with pytest.raises(WindowExpiredError, match=r"dbo\.Orders"):
        runner.open(FAILING)

    planner = replace(runner.planner, settings=FAILING)
    opened = planner.open_reload(ORDERS, "")
    assert find_stopped(FAILING, runner.ledger) is None
    runner.finish(opened)
    assert find_stopped(FAILING, runner.ledger) is None
    runner.change("UPDATE dbo.Orders SET V = 22 WHERE Id = 2", "DELETE FROM dbo.Plain WHERE Id = 1")
    runner.finish(runner.open(FAILING))
    assert (runner.differing(), find_stopped(FAILING, runner.ledger)) == ([], None)


def test_table_whose_changes_go_while_a_window_waits_leaves_it_and_the_other_is_merged(runner: Runner) -> None:
    runner.change("UPDATE dbo.Orders SET V = 19 WHERE Id = 2", "INSERT INTO dbo.Plain VALUES (3, 3)")
    opened = runner.open(FAILING)
    stopped_at = runner.watermark()
    expire_orders(runner)
    finished = runner.finish(runner.open(FAILING))
    assert finished.window_id == opened.window_id
    assert isinstance(find_stopped(FAILING, runner.ledger), WindowExpiredError)
    assert runner.rows('SELECT 1 FROM shop.plain WHERE "Id" = 3') == [(1,)]
    runner.finish(runner.open(FAILING))
    assert (runner.differing(), runner.watermark()) == ([ORDERS], stopped_at)


def test_added_table_that_is_loaded_on_demand_does_not_keep_the_others_waiting(runner: Runner) -> None:
    added = TableName("dbo", "Added")
    runner.database.run("CREATE TABLE dbo.Added (Id int PRIMARY KEY)", "INSERT INTO dbo.Added VALUES (1), (2), (3)")
    runner.database.enable("Added")
    runner.database.scan()
    settings = replace(SETTINGS, tables=(*SETTINGS.tables, TableSettings(added, TableName("shop", "added"))))
    load = replace(runner.planner, settings=settings).open_reload(added, "")
    runner.change("INSERT INTO dbo.Plain VALUES (2, 2)", "INSERT INTO dbo.Added VALUES (4)")
    runner.finish(runner.open(settings))
    assert runner.differing() == []
    runner.finish(load)
    runner.change("DELETE FROM dbo.Added WHERE Id = 1", "UPDATE dbo.Plain SET V = 3")
    runner.finish(runner.open(settings))
    assert all(each.equal for each in verify_tables(settings, runner.at, runner.connection))


def test_added_table_is_loaded_in_parallel_with_the_others_by_its_configuration(runner: Runner) -> None:
    added = TableName("dbo", "Added")
    runner.database.run("CREATE TABLE dbo.Added (Id int PRIMARY KEY)", "INSERT INTO dbo.Added VALUES (1), (2), (3)")
    runner.database.enable("Added")
    runner.change("INSERT INTO dbo.Plain VALUES (2, 2)")
    table = TableSettings(added, TableName("shop", "added"), first_load=FirstLoad(when_added=WhenAdded.IN_PARALLEL))
    settings = replace(SETTINGS, tables=(*SETTINGS.tables, table))
    opened = runner.open(settings)
    said = "SELECT verdict, cause FROM floodmark.verdicts WHERE source_name = 'Added'"
    ((verdict, cause),) = runner.rows(said)
    assert verdict == "repairing"
    assert "loads it for the first time, in parallel to the others: The DAG cdc_load_tests does it" in cause
    runner.finish(opened)
    assert runner.differing() == []
    runner.change("INSERT INTO dbo.Plain VALUES (3, 3)", "DELETE FROM dbo.Added WHERE Id = 1")
    # No second load is begun, and the others go on.
    runner.finish(runner.open(settings))
    assert runner.differing() == []
    ((_, cause),) = runner.rows(said)
    assert "(planned) loads it for the first time: its reading has not begun." in cause
    planner = replace(runner.planner, settings=settings)
    runner.finish(planner.open_pending())
    assert planner.open_pending().window_id is None
    runner.change("INSERT INTO dbo.Added VALUES (5)", "UPDATE dbo.Plain SET V = 4")
    runner.finish(runner.open(settings))
    assert all(each.equal for each in verify_tables(settings, runner.at, runner.connection))
    assert runner.ledger.read_tables("tests")[added].consistent
    assert runner.rows("SELECT 1 FROM floodmark.gaps") == []


def test_tables_of_a_new_pipeline_are_loaded_together_whatever_is_said_of_added_ones(runner: Runner) -> None:
    tables = tuple(
        TableSettings(name, TableName("new", name.name.lower()), first_load=FirstLoad(when_added=WhenAdded.IN_PARALLEL))
        for name in SETTINGS.sources
    )
    new = replace(SETTINGS, name="new", tables=tables)
    assert runner.open(new).window_id is not None
    opened = runner.ledger.unfinished_window("new")
    assert opened is not None
    assert [table.source for table in opened.plan.tables] == [ORDERS, PLAIN]


def test_source_that_was_restored_wins_over_what_the_target_has_of_the_lost_time(runner: Runner) -> None:
    point = "0x" + runner.database.scalar("sys.fn_cdc_get_max_lsn()").hex()
    runner.change("UPDATE dbo.Orders SET V = -1", "DELETE FROM dbo.Orders WHERE Id = 2", "DELETE FROM dbo.Plain")
    runner.change("INSERT INTO dbo.Orders VALUES (7, N'n', 7)", "INSERT INTO dbo.Plain VALUES (8, 8)")
    runner.run()
    assert runner.differing() == []
    runner.database.run(f"EXEC emulator.restore_database @to_lsn = {point}")
    assert runner.run().window_id is None
    assert runner.differing() == [ORDERS, PLAIN]
    for _ in range(2):
        assert runner.finish(runner.planner.open_pending()).window_id is not None
    assert runner.differing() == []
    assert runner.planner.open_pending().window_id is None
    runner.change(
        "UPDATE dbo.Orders SET V = 50", "INSERT INTO dbo.Orders VALUES (7, N's', 70)", "DELETE FROM dbo.Plain"
    )
    runner.run()
    assert runner.differing() == []


def rewritten(runner: Runner) -> Lsn:
    """The watermark lies where the source's log has other transactions now."""
    point = runner.newest()
    runner.change("UPDATE dbo.Orders SET V = -1", "DELETE FROM dbo.Orders WHERE Id = 2", "DELETE FROM dbo.Plain")
    runner.change("INSERT INTO dbo.Orders VALUES (7, N'n', 7)", "INSERT INTO dbo.Plain VALUES (8, 8)")
    runner.run()
    watermark = runner.watermark()
    assert watermark is not None
    assert runner.differing() == []
    runner.restore(point, beyond=watermark)
    return watermark


def test_source_that_was_restored_and_has_grown_beyond_the_watermark_stops_the_run(runner: Runner) -> None:
    watermark = rewritten(runner)
    before = runner.rows('SELECT * FROM shop.orders ORDER BY "Id"')
    with pytest.raises(SourceRewoundError) as caught:
        runner.open(FAILING)
    at = runner.ledger.read_tables("tests")[ORDERS].watermark_at
    said = str(caught.value)
    assert "dbo.Orders: ahead_of_source: the source has been restored, or failed over, to an older state" in said
    assert f"has written on since: at {watermark}" in said
    assert f"committed at {at}" in said
    assert runner.ledger.unfinished_window("tests") is None
    assert runner.watermark() == watermark
    assert runner.rows('SELECT * FROM shop.orders ORDER BY "Id"') == before
    verdicts = runner.rows("SELECT verdict, hint ~ 'floodmark reload' FROM floodmark.verdicts")
    assert verdicts == [("ahead_of_source", True)] * 2
    # It stays so however far the log grows.
    runner.change("UPDATE dbo.Orders SET V = 0 WHERE Id = 1")
    with pytest.raises(SourceRewoundError):
        runner.open(FAILING)


def test_repair_of_a_source_that_was_restored_and_has_grown_ends_equal(runner: Runner) -> None:
    watermark = rewritten(runner)
    assert runner.run().window_id is None
    assert runner.rows("SELECT DISTINCT verdict FROM floodmark.verdicts") == [("repairing",)]
    runner.change("UPDATE dbo.Orders SET V = 6 WHERE Id = 5")
    for _ in range(2):
        assert runner.finish(runner.planner.open_pending()).window_id is not None
    runner.change("UPDATE dbo.Orders SET V = 50", "INSERT INTO dbo.Orders VALUES (7, N's', 70)")
    runner.run()
    assert runner.differing() == []
    gaps = runner.rows(
        "SELECT verdict, after_lsn, to_lsn, to_at IS NOT NULL, repaired_at IS NOT NULL FROM floodmark.gaps"
    )
    assert gaps == [("ahead_of_source", None, watermark.value, True, True)] * 2
    # The new watermark is of the log that there is now.
    runner.change("UPDATE dbo.Orders SET V = 51 WHERE Id = 1")
    assert runner.open(FAILING).window_id is not None


def test_window_that_was_planned_before_a_restore_is_given_up_and_planned_again(runner: Runner) -> None:
    """The restored state has all that the target has; only what was planned is gone."""
    point = runner.newest()
    runner.change("UPDATE dbo.Orders SET V = -1", "DELETE FROM dbo.Plain")
    first = runner.open(FAILING)
    assert first.to is not None
    runner.restore(point, beyond=first.to)
    second = runner.finish(runner.open(FAILING))
    assert (second.state, second.window_id != first.window_id) == (WindowState.PLANNED, True)
    assert runner.differing() == []


def test_cleanup_up_to_the_watermark_is_no_restore(runner: Runner) -> None:
    runner.change("UPDATE dbo.Orders SET V = 7")
    runner.run()
    runner.change("UPDATE dbo.Orders SET V = 8")
    states = runner.ledger.read_tables("tests")
    (watermark,) = known_positions(states)
    for instance in ("dbo_Orders", "dbo_Plain"):
        low = f"0x{watermark.value.hex()}"
        runner.database.run(f"EXEC sys.sp_cdc_cleanup_change_table N'{instance}', {low}, 100")
    snapshot = SqlServerSource(runner.at).read_snapshot([ORDERS, PLAIN], None, known_positions(states))
    assert {table_seen.oldest for table_seen in snapshot.tables} == {watermark}
    assert snapshot.entries == {watermark: states[ORDERS].watermark_at}
    runner.run()
    assert runner.differing() == []


def test_condition_is_the_servers_and_bounds_what_is_read(runner: Runner) -> None:
    with psycopg.connect(runner.connection.conninfo()) as session:
        session.execute('UPDATE shop.orders SET "V" = 0')
    condition = parse_condition("Region = N'n' AND Id % 2 = 1", ORDERS)
    opened = runner.planner.open_reload(ORDERS, condition)
    runner.finish(opened)
    assert runner.rows('SELECT "Id", "V" FROM shop.orders ORDER BY 1') == [(1, 1), (2, 0), (3, 3), (4, 0), (5, 5)]
    chunks = f"SELECT rows::int FROM floodmark.load_chunks WHERE window_id = {opened.window_id} ORDER BY chunk_no"
    assert runner.rows(chunks) == [(2,), (1,)]
