"""Which columns a switch of capture instances takes along, and that their values are the source's afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import TableNotPlannableError
from floodmark.core.settings import Backfill, ColumnSettings, DriftPolicy, Mask, NewColumns
from floodmark.postgres.session import WarehouseConnection

pytestmark = pytest.mark.usefixtures("ledger")


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(20))",
            "INSERT INTO dbo.Orders VALUES (1, 10, N'old'), (2, 20, N'old'), (3, 30, NULL)",
        )
        made.enable("Orders")
        yield made


@pytest.fixture
def rig(emulator: Emulator, source: CdcDatabase, database: WarehouseConnection) -> SwitchRig:
    made = SwitchRig(emulator, source, database)
    made.run()
    return made


def switch_pipeline(rig: SwitchRig) -> None:
    """Run all steps of an approved switch."""
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Id = Id WHERE Id = 1", "INSERT INTO dbo.Orders (Id) VALUES (9)")
    rig.run()
    rig.switches.take()
    rig.finish(rig.load_planner().open_pending())
    assert rig.switches.take()[0].endswith("done; dbo_Orders was dropped.")


def test_columns_that_can_never_arrive_are_reported_and_left_out_of_the_proposal(rig: SwitchRig) -> None:
    long = "L" * 64
    rig.change(
        "ALTER TABLE dbo.Orders ADD Twice AS Amount * 2",
        "ALTER TABLE dbo.Orders ADD Anything sql_variant NULL",
        f"ALTER TABLE dbo.Orders ADD {long} int NULL",
        "ALTER TABLE dbo.Orders ADD __lsn int NULL",
    )
    rig.watch_closely()
    assert rig.switches.list_proposed() == []
    reported = {alert.what: alert for alert in rig.alerts.open.values()}
    for column, why in (
        ("Twice int", "it is computed, and values of computed columns are not read"),
        ("Anything sql_variant", "it has type sql_variant, which no warehouse can hold"),
        (f"{long} int", "it has a name longer than the 63 bytes that PostgreSQL allows"),
        ("__lsn int", "it has a name that is reserved in the warehouse"),
    ):
        (alert,) = [
            alert
            for what, alert in reported.items()
            if f"column {column} was added and cannot be loaded, because {why}." in what
        ]
        assert "can never reach the target" in alert.means
        assert "sp_cdc_enable_table" not in alert.do
    assert {event.policies["shop"] for event in rig.drift.list_events("shop")} == {DriftPolicy.ALERT}
    rig.change("ALTER TABLE dbo.Orders ADD Fine int NULL")
    rig.watch_closely()
    ((event, proposal),) = rig.switches.list_proposed()
    assert proposal.added == ("Fine",)
    assert event.explained.difference.column == "Fine"
    rig.approve()
    switch_pipeline(rig)
    assert rig.differing() == []


def test_column_that_was_changed_to_what_cannot_be_carried_is_not_proposed_any_more(rig: SwitchRig) -> None:
    rig.change("ALTER TABLE dbo.Orders ADD Fine int NULL")
    rig.watch_closely()
    ((event, _),) = rig.switches.list_proposed()
    rig.change("ALTER TABLE dbo.Orders ALTER COLUMN Fine sql_variant")
    assert rig.switches.list_proposed() == []
    assert rig.drift.list_events("shop")[0].event_id == event.event_id
    rig.change("INSERT INTO dbo.Orders (Id) VALUES (9)")
    rig.run()
    assert ORDERS in rig.ledger.read_tables("shop")


def test_column_that_comes_back_loses_the_values_of_the_one_that_was_dropped(rig: SwitchRig) -> None:
    rig.change("ALTER TABLE dbo.Orders DROP COLUMN Note", "ALTER TABLE dbo.Orders ADD Note nvarchar(20) NULL")
    rig.change("UPDATE dbo.Orders SET Amount = 21, Note = N'new' WHERE Id = 2")
    rig.run()
    assert rig.rows('SELECT "Id", "Note" FROM shop.orders ORDER BY 1') == [(1, "old"), (2, "old"), (3, None)]
    rig.approve()
    switch_pipeline(rig)
    assert rig.rows('SELECT "Id", "Note" FROM shop.orders WHERE "Id" < 9 ORDER BY 1') == [
        (1, None),
        (2, "new"),
        (3, None),
    ]
    assert rig.differing() == []


def test_pipeline_whose_target_cannot_take_the_new_type_stays_where_it_is_and_goes_on_once_it_can(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    rig = SwitchRig(emulator, source, database, "shop", "late")
    rig.run()
    rig.change("ALTER TABLE dbo.Orders DROP COLUMN Note", "ALTER TABLE dbo.Orders ADD Note int NULL")
    rig.change("UPDATE dbo.Orders SET Amount = 21, Note = 5 WHERE Id = 2")
    rig.run()
    rig.run("late")
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Amount = 22 WHERE Id = 2")
    rig.run()
    rig.run("late")
    (said,) = rig.switches.take()
    assert "column Note has type character varying(20), which cannot become integer" in said
    (alert,) = [alert for alert in rig.alerts.open.values() if alert.kind == "instance_switch"]
    assert "rename it or drop it in the warehouse" in alert.do
    first, second = rig.pinned(), rig.pinned("late")
    assert first is not None
    assert second is not None
    assert (first.name, second.name) == ("dbo_Orders", "dbo_Orders_2")
    rig.change("UPDATE dbo.Orders SET Amount = 23, Note = 6 WHERE Id = 3")
    assert rig.run().window_id is not None
    with psycopg.connect(database.conninfo()) as session:
        session.execute('ALTER TABLE shop.orders RENAME COLUMN "Note" TO "OldNote"')
    (said,) = rig.switches.take()
    assert "shop reads dbo_Orders_2; window" in said
    assert rig.alerts.kinds == ["schema_drift"]
    rig.finish(rig.load_planner().open_pending())
    rig.finish(rig.load_planner("late").open_pending())
    assert rig.switches.take()[0].endswith("done; dbo_Orders was dropped.")
    rig.run("late")
    assert rig.rows('SELECT "Id", "Amount", "Note" FROM shop.orders ORDER BY 1') == [
        (1, 10, None),
        (2, 22, 5),
        (3, 23, 6),
    ]
    assert rig.differing() == []


def add_mail(rig: SwitchRig, **chosen: Any) -> None:
    """Give the table a column whose values are to be seen as the settings of the table say, and switch to it."""
    choose(rig, **chosen)
    rig.change("ALTER TABLE dbo.Orders ADD Mail nvarchar(20) NULL")
    rig.change("UPDATE dbo.Orders SET Amount = 21, Mail = N'planted' WHERE Id = 2")
    rig.run()
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Amount = 11, Mail = N'planted' WHERE Id = 1")


def choose(rig: SwitchRig, **chosen: Any) -> None:
    rig.pipelines = [replace(rig.pipelines[0], tables=(replace(rig.pipelines[0].tables[0], **chosen),))]


MAILS = 'SELECT "Id", "Amount", to_jsonb(o) ->> \'Mail\' FROM shop.orders AS o WHERE "Id" < 3 ORDER BY 1'


def test_new_column_that_waits_for_a_decision_is_not_loaded_by_a_switch(rig: SwitchRig) -> None:
    add_mail(rig, new_columns=NewColumns.HOLD)
    rig.run()
    assert "a new column Mail, and new columns wait for a decision" in rig.switches.take()[0]
    assert rig.alerts.kinds == ["instance_switch"]
    # The pipeline goes on without the column.
    assert rig.rows(MAILS) == [(1, 11, None), (2, 21, None)]
    assert rig.load_planner().open_pending().window_id is None
    choose(rig, columns=(ColumnSettings("Mail", mask=Mask.LAST4),))
    assert "window 4 loads Mail" in rig.switches.take()[0]
    rig.finish(rig.load_planner().open_pending())
    assert rig.switches.take()[0].endswith("done; dbo_Orders was dropped.")
    rig.change("UPDATE dbo.Orders SET Mail = N'changed' WHERE Id = 1")
    rig.run()
    assert rig.rows(MAILS) == [(1, 11, "***nged"), (2, 21, "***nted")]
    assert rig.differing() == []


def test_new_column_that_is_named_before_it_is_captured_leaves_the_table_out(rig: SwitchRig) -> None:
    add_mail(rig, new_columns=NewColumns.HOLD)
    choose(rig, columns=(ColumnSettings("Mail", mask=Mask.LAST4),))
    with pytest.raises(TableNotPlannableError, match="no captured column Mail in this spelling"):
        rig.run()
    assert rig.rows(MAILS) == [(1, 10, None), (2, 21, None)]


def test_new_column_that_is_not_to_be_read_is_not_loaded_by_a_switch(rig: SwitchRig) -> None:
    add_mail(rig, new_columns=NewColumns.DROP)
    rig.run()
    assert rig.switches.take()[0].endswith("done; dbo_Orders was dropped.")
    # Nothing of the column is read, so that no window loads it.
    assert rig.load_planner().open_pending().window_id is None
    rig.change("UPDATE dbo.Orders SET Amount = 12, Mail = N'changed' WHERE Id = 1")
    rig.run()
    assert rig.rows(MAILS) == [(1, 12, None), (2, 21, None)]
    assert rig.differing() == []


CLEANED = """
DECLARE @low binary(10) = sys.fn_cdc_get_max_lsn();
EXEC sys.sp_cdc_cleanup_change_table @capture_instance = N'dbo_Orders', @low_water_mark = @low
"""


def approved_rank(emulator: Emulator, source: CdcDatabase, database: WarehouseConnection) -> SwitchRig:
    """A second instance with a column that a row was given before it was made, and another row touched since."""
    rig = SwitchRig(emulator, source, database, backfill=Backfill.TOUCHED)
    rig.run()
    rig.change("ALTER TABLE dbo.Orders ADD Rank int NULL")
    rig.change("UPDATE dbo.Orders SET Amount = 21, Rank = 5 WHERE Id = 2")
    rig.run()
    rig.watch_closely()
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    return rig


def test_touched_rows_are_all_filled_ones_where_changes_have_been_cleaned_up(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    rig = approved_rank(emulator, source, database)
    rig.database.run(CLEANED)
    rig.switches.take()
    rig.finish(rig.load_planner().open_pending())
    assert rig.rows('SELECT "Id", "Rank" FROM shop.orders ORDER BY 1') == [(1, None), (2, 5), (3, None)]


def test_touched_rows_whose_changes_are_cleaned_up_before_they_are_loaded_are_loaded_after_all(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    rig = approved_rank(emulator, source, database)
    assert "loads Rank" in rig.switches.take()[0]
    rig.database.run(CLEANED)
    rig.finish(rig.load_planner().open_pending())
    assert "loads Rank" in rig.switches.take()[0]
    rig.finish(rig.load_planner().open_pending())
    assert rig.rows('SELECT "Id", "Rank" FROM shop.orders ORDER BY 1') == [(1, None), (2, 5), (3, None)]
    assert rig.switches.take()[0].endswith("done; dbo_Orders was dropped.")
