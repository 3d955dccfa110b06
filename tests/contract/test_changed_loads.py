"""Loads of tables that lose a column, or change its type, after they were planned: they are planned anew, not stuck."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.errors import OperatorError
from floodmark.warehouse.connection import WarehouseConnection


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(20))",
            "INSERT INTO dbo.Orders VALUES (1, 10, N'one'), (2, 20, N'two')",
        )
        source.enable("Orders")
        yield SwitchRig(emulator, source, database)


def test_first_load_is_planned_anew_without_the_column_that_was_dropped(rig: SwitchRig) -> None:
    planned = rig.open().window_id
    rig.change("ALTER TABLE dbo.Orders DROP COLUMN Note", "INSERT INTO dbo.Orders VALUES (3, 30)")
    assert rig.run().window_id != planned
    assert rig.rows('SELECT "Id", "Amount" FROM shop.orders ORDER BY 1') == [(1, 10), (2, 20), (3, 30)]


def test_first_load_is_planned_anew_with_the_type_that_a_column_has_by_now(rig: SwitchRig) -> None:
    planned = rig.open().window_id
    rig.change("ALTER TABLE dbo.Orders ALTER COLUMN Amount bigint", "UPDATE dbo.Orders SET Amount = 5000000000")
    assert rig.run().window_id != planned
    assert rig.rows('SELECT DISTINCT "Amount" FROM shop.orders') == [(5_000_000_000,)]


def test_reload_is_planned_anew_and_the_target_keeps_what_it_has_of_the_dropped_column(rig: SwitchRig) -> None:
    rig.run()
    planned = rig.load_desk().open_reload(ORDERS).window_id
    rig.change("ALTER TABLE dbo.Orders DROP COLUMN Note", "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    assert rig.finish(rig.load_desk().open_pending()).window_id != planned
    assert rig.rows('SELECT "Id", "Amount", "Note" FROM shop.orders ORDER BY 1') == [(1, 11, "one"), (2, 20, "two")]


def test_load_of_some_rows_is_given_up_as_its_condition_may_name_what_is_gone(rig: SwitchRig) -> None:
    rig.run()
    rig.load_desk().open_reload(ORDERS, "[Note] IS NOT NULL")
    rig.change("ALTER TABLE dbo.Orders DROP COLUMN Note", "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    with pytest.raises(OperatorError, match="given up: the table has other columns by now"):
        rig.load_desk().open_pending()
    assert rig.load_desk().open_pending().window_id is None
    rig.run()
    assert rig.rows('SELECT "Amount" FROM shop.orders ORDER BY "Id"') == [(11,), (20,)]
