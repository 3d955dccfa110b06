"""Which columns a switch of capture instances takes along, and that their values are the source's afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.drift import DriftPolicy
from floodmark.warehouse.connection import WarehouseConnection


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


def go_over(rig: SwitchRig) -> None:
    """All of a switch that somebody has approved."""
    rig.steps.take()
    rig.change("UPDATE dbo.Orders SET Id = Id WHERE Id = 1", "INSERT INTO dbo.Orders (Id) VALUES (9)")
    rig.run()
    rig.steps.take()
    rig.finish(rig.load_desk().open_pending())
    assert rig.steps.take()[0].endswith("done; dbo_Orders is gone.")


def test_columns_that_can_never_arrive_are_told_and_left_out_of_the_proposal(rig: SwitchRig) -> None:
    long = "L" * 64
    rig.change(
        "ALTER TABLE dbo.Orders ADD Twice AS Amount * 2", "ALTER TABLE dbo.Orders ADD Anything sql_variant NULL",
        f"ALTER TABLE dbo.Orders ADD {long} int NULL", "ALTER TABLE dbo.Orders ADD __lsn int NULL",
    )  # fmt: skip
    rig.watch_closely()
    assert rig.desk.list_proposed() == []
    told = {alert.what: alert for alert in rig.alerts.open.values()}
    for column, why in (
        ("Twice int", "it is computed, and change tables hold no values of computed columns"),
        ("Anything sql_variant", "it has type sql_variant, which has no place in a warehouse"),
        (f"{long} int", "it is longer than the 63 bytes of PostgreSQL's names"),
        ("__lsn int", "it has a name that the warehouse keeps for itself"),
    ):
        (alert,) = [
            alert for what, alert in told.items()
            if f"column {column} was added, and cannot be carried, because {why}." in what
        ]  # fmt: skip
        assert "can never reach the target" in alert.means
        assert "sp_cdc_enable_table" not in alert.do
    assert {event.policies["shop"] for event in rig.drift.list_events("shop")} == {DriftPolicy.ALERT}
    rig.change("ALTER TABLE dbo.Orders ADD Fine int NULL")
    rig.watch_closely()
    ((event, proposal),) = rig.desk.list_proposed()
    assert proposal.added == ("Fine",)
    assert event.explained.difference.column == "Fine"
    rig.approve()
    go_over(rig)
    assert rig.differing() == []


def test_column_that_was_changed_to_what_cannot_be_carried_is_not_proposed_any_more(rig: SwitchRig) -> None:
    rig.change("ALTER TABLE dbo.Orders ADD Fine int NULL")
    rig.watch_closely()
    ((event, _),) = rig.desk.list_proposed()
    rig.change("ALTER TABLE dbo.Orders ALTER COLUMN Fine sql_variant")
    assert rig.desk.list_proposed() == []
    assert rig.drift.list_events("shop")[0].event_id == event.event_id
    rig.change("INSERT INTO dbo.Orders (Id) VALUES (9)")
    rig.run()
    assert ORDERS in rig.ledger.read_tables("shop")
