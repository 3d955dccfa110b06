"""``live_view``: the view of the rows that the source has not deleted, and that it follows its target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.settings import Deletes, Naming
from floodmark.postgres.session import WarehouseConnection

pytestmark = pytest.mark.usefixtures("ledger")


class ViewRig(SwitchRig):
    """A pipeline of one table."""

    def choose(self, **chosen: Any) -> None:
        settings = self.pipelines[0]
        self.pipelines = [replace(settings, tables=tuple(replace(each, **chosen) for each in settings.tables))]

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.connection.conninfo()) as session:
            for statement in statements:
                session.execute(statement)

    def columns(self) -> list[str]:
        found = self.rows(
            "SELECT attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = 'shop.orders_live'::regclass AND attnum > 0 ORDER BY attnum"
        )
        return [column for (column,) in found]


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int)",
            "INSERT INTO dbo.Orders VALUES (1, 10), (2, 20), (3, 30)",
        )
        made.enable("Orders")
        yield made


@pytest.fixture
def rig(emulator: Emulator, source: CdcDatabase, database: WarehouseConnection) -> ViewRig:
    return ViewRig(emulator, source, database)


@pytest.mark.parametrize("deletes", Deletes)
def test_view_has_the_rows_and_columns_of_the_source_after_changes(rig: ViewRig, deletes: Deletes) -> None:
    rig.choose(live_view=True, deletes=deletes)
    rig.run()
    rig.change("DELETE dbo.Orders WHERE Id = 2", "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    assert rig.rows("SELECT * FROM shop.orders_live ORDER BY 1") == [(1, 11), (3, 30)]
    assert rig.columns() == ["Id integer", "Amount integer"]
    assert len(rig.rows("SELECT FROM shop.orders")) == (3 if deletes is Deletes.SOFT else 2)


def test_view_gets_the_names_that_a_reload_gives_to_columns_and_the_new_type(rig: ViewRig) -> None:
    rig.database.run("ALTER TABLE dbo.Orders ADD OrderNo smallint")
    rig.database.enable("Orders", capture_instance="N'dbo_Orders_2'")
    rig.choose(live_view=True, capture_instance="dbo_Orders_2")
    rig.run()
    rig.execute("DROP ROLE IF EXISTS reader_of_names", "CREATE ROLE reader_of_names")
    rig.execute('GRANT SELECT ("OrderNo") ON shop.orders_live TO reader_of_names')
    rig.change("ALTER TABLE dbo.Orders ALTER COLUMN OrderNo int", "UPDATE dbo.Orders SET OrderNo = 70000 WHERE Id = 1")
    rig.choose(naming=Naming.SNAKE_CASE)
    rig.finish(rig.load_planner().open_reload(ORDERS))
    assert rig.columns() == ["id integer", "amount integer", "order_no integer"]
    assert rig.rows("SELECT order_no FROM shop.orders_live WHERE id = 1") == [(70000,)]
    named = "has_column_privilege('reader_of_names', 'shop.orders_live', 'order_no', 'SELECT')"
    assert rig.rows(f"SELECT {named}") == [(True,)]


def test_view_that_others_read_gets_the_new_names_where_it_is(rig: ViewRig) -> None:
    rig.choose(live_view=True)
    rig.run()
    rig.execute('CREATE VIEW shop.report AS SELECT sum("Amount") AS total FROM shop.orders_live')
    rig.choose(naming=Naming.SNAKE_CASE)
    rig.finish(rig.load_planner().open_reload(ORDERS))
    assert rig.columns() == ["id integer", "amount integer"]
    assert rig.rows("SELECT total FROM shop.report") == [(60,)]


def test_view_gets_the_column_of_a_switch_and_the_values_of_its_load(rig: ViewRig) -> None:
    rig.choose(live_view=True)
    rig.run()
    rig.change("ALTER TABLE dbo.Orders ADD Note nvarchar(20)", "UPDATE dbo.Orders SET Note = N'late' WHERE Id = 3")
    rig.watch_closely()
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Note = N'new' WHERE Id = 1")
    rig.run()
    rig.switches.take()
    rig.finish(rig.load_planner().open_pending())
    assert rig.columns() == ["Id integer", "Amount integer", "Note character varying(20)"]
    assert rig.rows("SELECT * FROM shop.orders_live ORDER BY 1") == [(1, 10, "new"), (2, 20, None), (3, 30, "late")]
