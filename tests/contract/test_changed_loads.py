"""Loads of tables that lose a column, or change its type, after they were planned: they are planned again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.errors import OperatorError
from floodmark.core.plan import plan_chunks
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.postgres.session import WarehouseConnection
from in_process_stager import InProcessStager
from row_verification import reading


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(20))",
            "INSERT INTO dbo.Orders VALUES (1, 10, N'one'), (2, 20, N'two')",
        )
        source.enable("Orders")
        yield SwitchRig(emulator, source, database)


def test_first_load_is_planned_again_without_the_column_that_was_dropped(rig: SwitchRig) -> None:
    planned = rig.open().window_id
    rig.change("ALTER TABLE dbo.Orders DROP COLUMN Note", "INSERT INTO dbo.Orders VALUES (3, 30)")
    assert rig.run().window_id != planned
    assert rig.rows('SELECT "Id", "Amount" FROM shop.orders ORDER BY 1') == [(1, 10), (2, 20), (3, 30)]


def test_first_load_is_planned_again_with_the_type_that_a_column_has_by_now(rig: SwitchRig) -> None:
    planned = rig.open().window_id
    rig.change("ALTER TABLE dbo.Orders ALTER COLUMN Amount bigint", "UPDATE dbo.Orders SET Amount = 5000000000")
    assert rig.run().window_id != planned
    assert rig.rows('SELECT DISTINCT "Amount" FROM shop.orders') == [(5_000_000_000,)]


def test_table_that_leaves_a_window_takes_nothing_of_what_another_first_load_has_staged(rig: SwitchRig) -> None:
    rig.database.run("CREATE TABLE dbo.Items (Id int NOT NULL PRIMARY KEY, Note nvarchar(20))")
    rig.database.enable("Items")
    (orders,) = rig.pipelines[0].tables
    items = TableSettings(TableName("dbo", "Items"), TableName("shop", "items"))
    rig.pipelines = [PipelineSettings("shop", (orders, items))]
    window_id = rig.open().window_id
    assert window_id is not None
    plan = rig.ledger.begin_load(window_id).plan
    rig.warehouse.prepare_window(plan)
    chunks = rig.ledger.store_chunks(plan, ORDERS, plan_chunks([]))
    sink = rig.warehouse.sink(plan, 0)
    InProcessStager(reading(rig.at)).stage_chunks(plan, 0, [each.chunk for each in chunks], 1, sink)
    rig.change("ALTER TABLE dbo.Items DROP COLUMN Note")
    assert rig.open().window_id == window_id
    left = rig.ledger.begin_load(window_id).plan
    assert [table.source for table in left.tables] == [ORDERS]
    rig.warehouse.prepare_window(left)
    assert rig.warehouse.count_parts(left, 0) == {0: 2}


def test_reload_is_planned_again_and_the_target_keeps_what_it_has_of_the_dropped_column(rig: SwitchRig) -> None:
    rig.run()
    planned = rig.load_planner().open_reload(ORDERS).window_id
    rig.change("ALTER TABLE dbo.Orders DROP COLUMN Note", "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    assert rig.finish(rig.load_planner().open_pending()).window_id != planned
    assert rig.rows('SELECT "Id", "Amount", "Note" FROM shop.orders ORDER BY 1') == [(1, 11, "one"), (2, 20, "two")]


def test_load_of_some_rows_is_given_up_as_its_condition_may_name_what_is_gone(rig: SwitchRig) -> None:
    rig.run()
    rig.load_planner().open_reload(ORDERS, "[Note] IS NOT NULL")
    rig.change("ALTER TABLE dbo.Orders DROP COLUMN Note", "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    with pytest.raises(OperatorError, match="given up: the table has other columns now"):
        rig.load_planner().open_pending()
    assert rig.load_planner().open_pending().window_id is None
    rig.run()
    assert rig.rows('SELECT "Amount" FROM shop.orders ORDER BY "Id"') == [(11,), (20,)]
