"""Derived columns: the warehouse computes them in every row, whatever a run does to the target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.errors import ConfigError, FloodmarkError, TargetRefusedError
from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes, DerivedColumn, FirstLoad, PipelineSettings, Style, TableSettings
from floodmark.postgres.session import WarehouseConnection

TARGET = TableName("shop", "orders")
DOUBLED = DerivedColumn("doubled", '"Amount" * 2')
NAMED = DerivedColumn("named", "upper(note) || '-' || \"Id\"::text")
ROWS = 'SELECT "Id", doubled, named FROM {} ORDER BY 1, 2'


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(20))",
            "INSERT INTO dbo.Orders VALUES (1, 10, N'a'), (2, 20, N'b'), (3, 30, NULL)",
        )
        source.enable("Orders")
        made = SwitchRig(emulator, source, database)
        configure(made, DOUBLED, NAMED)
        yield made


def configure(rig: SwitchRig, *derived: DerivedColumn, **settings: Any) -> None:
    chosen = {"first_load": FirstLoad(chunk_rows=2)} | settings
    rig.pipelines = [PipelineSettings("shop", (TableSettings(ORDERS, TARGET, derived=derived, **chosen),))]


def execute(rig: SwitchRig, *statements: str) -> None:
    with psycopg.connect(rig.connection.conninfo()) as session:
        for statement in statements:
            session.execute(statement)


def filenode(rig: SwitchRig) -> Any:
    """Return what another value of shows that all rows were written."""
    return rig.rows("SELECT pg_relation_filenode('shop.orders')")


@pytest.mark.parametrize("deletes", list(Deletes))
def test_rows_of_loads_and_of_windows_have_derived_values(rig: SwitchRig, deletes: Deletes) -> None:
    configure(rig, DOUBLED, NAMED, deletes=deletes, live_view=deletes is Deletes.SOFT, commit_times=True)
    rig.run()
    assert rig.rows(ROWS.format(TARGET)) == [(1, 20, "A-1"), (2, 40, "B-2"), (3, 60, None)]
    rig.change("UPDATE dbo.Orders SET Amount = 11, Note = N'c' WHERE Id = 1", "DELETE dbo.Orders WHERE Id = 2")
    rig.run()
    gone = [(2, 40, "B-2")] if deletes is Deletes.SOFT else []
    assert rig.rows(ROWS.format(TARGET)) == [(1, 22, "C-1"), *gone, (3, 60, None)]
    if deletes is Deletes.SOFT:
        assert rig.rows(ROWS.format("shop.orders_live")) == [(1, 22, "C-1"), (3, 60, None)]
    assert rig.differing() == []


@pytest.mark.parametrize("style", [Style.HISTORY, Style.LOG, Style.SNAPSHOT])
def test_each_style_has_derived_columns(rig: SwitchRig, style: Style) -> None:
    configure(rig, style=style)
    rig.run()
    configure(rig, DOUBLED, NAMED, style=style)
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1", "DELETE dbo.Orders WHERE Id = 3")
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = 12 WHERE Id = 1")
    rig.run()
    rows = {
        Style.HISTORY: [(1, 20, "A-1"), (1, 22, "A-1"), (1, 24, "A-1"), (2, 40, "B-2"), (3, 60, None), (3, 60, None)],
        Style.LOG: [(1, 20, "A-1"), (1, 22, "A-1"), (1, 24, "A-1"), (2, 40, "B-2"), (3, 60, None), (3, 60, None)],
        Style.SNAPSHOT: [(1, 24, "A-1"), (2, 40, "B-2")],
    }
    assert rig.rows(ROWS.format("shop.orders_history" if style is Style.HISTORY else TARGET)) == rows[style]
    rig.finish(rig.load_planner().open_reload(ORDERS))
    if style is Style.HISTORY:
        assert rig.rows(ROWS.format("shop.orders_history")) == rows[style]
        assert rig.differing() == []


def test_expression_that_is_changed_is_computed_again_and_one_that_is_not_is_not(rig: SwitchRig) -> None:
    configure(rig, DOUBLED, NAMED, live_view=True)
    rig.run()
    before = filenode(rig)
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    assert filenode(rig) == before
    configure(rig, DerivedColumn("doubled", "amount::numeric(9, 2) / 4"), NAMED, live_view=True)
    rig.change("UPDATE dbo.Orders SET Amount = 12 WHERE Id = 1")
    rig.run()
    found = rig.rows('SELECT doubled::float, named FROM shop.orders_live ORDER BY "Id"')
    assert found == [(3.0, "A-1"), (5.0, "B-2"), (7.5, None)]
    # Without its entry a column stays as it is.
    configure(rig, live_view=True)
    rig.change("UPDATE dbo.Orders SET Amount = 16 WHERE Id = 1")
    rig.run()
    assert rig.rows('SELECT doubled::float FROM shop.orders_live WHERE "Id" = 1') == [(4.0,)]


@pytest.mark.parametrize("style", [Style.CURRENT, Style.HISTORY])
def test_column_that_a_derived_one_uses_is_widened_with_it(rig: SwitchRig, style: Style) -> None:
    configure(rig, DOUBLED, NAMED, style=style, live_view=style is Style.CURRENT)
    rig.run()
    rig.database.run("ALTER TABLE dbo.Orders ALTER COLUMN Amount bigint")
    rig.change("UPDATE dbo.Orders SET Amount = 4000000000 WHERE Id = 1")
    rig.run()
    assert rig.rows('SELECT doubled, named FROM shop.orders WHERE "Id" = 1') == [(8000000000, "A-1")]
    view = "shop.orders_live" if style is Style.CURRENT else "shop.orders_history"
    assert (1, 8000000000, "A-1") in rig.rows(ROWS.format(view))
    assert rig.differing() == []


def test_objects_that_use_a_derived_column_keep_it_and_are_named(rig: SwitchRig) -> None:
    rig.run()
    execute(rig, "CREATE INDEX by_doubled ON shop.orders (doubled)")
    rig.database.run("ALTER TABLE dbo.Orders ALTER COLUMN Amount bigint")
    rig.change("UPDATE dbo.Orders SET Amount = 4000000000 WHERE Id = 1")
    with pytest.raises(TargetRefusedError, match=r"column doubled .* others use it: index shop\.by_doubled"):
        rig.run()
    execute(rig, "DROP INDEX shop.by_doubled")
    rig.run()
    assert rig.rows('SELECT doubled FROM shop.orders WHERE "Id" = 1') == [(8000000000,)]


def test_expression_that_no_row_can_have_is_refused_by_name(rig: SwitchRig) -> None:
    configure(rig)
    rig.run()
    execute(rig, "ALTER TABLE shop.orders ADD COLUMN mine int")
    for derived, why in (
        (DerivedColumn("d", "amoun * 2"), "d: there is no column amoun"),
        (DerivedColumn("d", "amount * "), "d: not an expression: it is incomplete"),
        (DerivedColumn("d", "random() * amount"), "d: generation expression is not immutable"),
        (DerivedColumn("d", "no_function(amount)"), "d: function no_function.* does not exist"),
        (DerivedColumn("d", "1 / (amount - 10)"), r"d: it cannot be computed for a row \(SQLSTATE 22012\)"),
        (DerivedColumn("Note", "amount * 2"), "Note: the source has a column of this name"),
        (
            DerivedColumn("mine", "amount * 2"),
            "mine: shop.orders has a column of this name that Flood",
        ),
    ):
        configure(rig, derived)
        rig.change("UPDATE dbo.Orders SET Amount = Amount + 1 WHERE Id = 2")
        with pytest.raises(ConfigError, match=f"derived: {why}"):
            rig.run()
        configure(rig)
        rig.run()
        assert rig.differing() == []


def test_row_whose_expression_fails_refuses_the_window_without_its_values(rig: SwitchRig) -> None:
    configure(rig, DerivedColumn("d", "note::int"))
    rig.database.run("DELETE dbo.Orders")
    rig.database.scan()
    rig.run()
    rig.change("INSERT INTO dbo.Orders VALUES (7, 1, N'planted')")
    with pytest.raises(FloodmarkError) as raised:
        rig.run()
    assert "planted" not in f"{raised.value} {raised.value.message} {raised.value.hint}"
    rig.change("UPDATE dbo.Orders SET Note = N'77' WHERE Id = 7")
    rig.run()
    assert rig.rows("SELECT d FROM shop.orders") == [(77,)]
