"""The database that a pipeline follows: a connection that leads elsewhere stops every table until it is confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.config.sections import DriftConfig, drift_policies
from floodmark.core.errors import OtherDatabaseError
from floodmark.core.schema import TableName
from floodmark.core.settings import OnGap, PipelineSettings, TableSettings
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.repair import LoadPlanner
from in_process_stager import InProcessStager
from row_verification import reading, verify_tables

ADDED = TableName("dbo", "Added")


def made(emulator: Emulator, first: int) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as database:
        for table in ("Orders", "Added"):
            database.run(f"CREATE TABLE dbo.{table} (Id int PRIMARY KEY, Amount int)")
            database.enable(table)
        database.run(f"INSERT INTO dbo.Orders VALUES ({first}, 1), ({first + 1}, 1)")
        database.scan()
        yield database


@pytest.fixture
def production(emulator: Emulator) -> Iterator[CdcDatabase]:
    yield from made(emulator, 1)


@pytest.fixture
def elsewhere(emulator: Emulator, production: CdcDatabase) -> Iterator[CdcDatabase]:
    """A test system with the same tables."""
    assert production.name
    yield from made(emulator, 101)


@pytest.fixture
def rig(emulator: Emulator, production: CdcDatabase, database: WarehouseConnection) -> SwitchRig:
    made = SwitchRig(emulator, production, database)
    policies = drift_policies(DriftConfig(), DriftConfig(), repairs=True)
    repairing = replace(made.pipelines[0].tables[0], on_gap=OnGap.REPAIR, drift=policies)
    added = TableSettings(ADDED, TableName("shop", "added"), on_gap=OnGap.REPAIR, drift=policies)
    made.pipelines = [PipelineSettings("shop", (repairing, added), source_name="shop_db")]
    return made


def moved(rig: SwitchRig, database: CdcDatabase) -> None:
    """The connection's schema is changed, by mistake or not."""
    rig.at = replace(rig.at, database=database.name)
    rig.database = database


def test_connection_that_leads_elsewhere_fails_every_table_and_repairs_none(
    rig: SwitchRig, production: CdcDatabase, elsewhere: CdcDatabase
) -> None:
    rig.run()
    rows = rig.rows('SELECT "Id", __deleted FROM shop.orders ORDER BY 1')
    moved(rig, elsewhere)
    settings, source = rig.pipelines[0], SqlServerSource(rig.at)
    events = rig.rows("SELECT event_id FROM floodmark.drift_events")
    for refused in (
        lambda: open_window(settings, source, rig.ledger, rig.watch),
        lambda: LoadPlanner(settings, source, rig.ledger, rig.warehouse, rig.watch).open_reload(ORDERS),
        lambda: rig.watch.watch(source, {"shop": rig.ledger.read_tables("shop")}),
        lambda: list(verify_tables(settings, rig.at, rig.connection)),
    ):
        with pytest.raises(OtherDatabaseError, match="another database") as caught:
            refused()
        assert "floodmark source confirm shop_db" in caught.value.hint
        assert not caught.value.retryable
    assert rig.rows("SELECT DISTINCT verdict FROM floodmark.verdicts") == [("other_database",)]
    assert rig.rows("SELECT count(*) FROM floodmark.windows WHERE state <> 'advanced'") == [(0,)]
    assert rig.rows("SELECT event_id FROM floodmark.drift_events") == events
    assert rig.rows('SELECT "Id", __deleted FROM shop.orders ORDER BY 1') == rows
    moved(rig, production)
    rig.change("INSERT INTO dbo.Orders VALUES (3, 3)")
    rig.run()
    assert rig.differing() == []


def test_database_that_was_confirmed_is_followed_and_repaired(rig: SwitchRig, elsewhere: CdcDatabase) -> None:
    rig.run()
    moved(rig, elsewhere)
    identity = SqlServerSource(rig.at).read_snapshot([]).identity
    assert identity is not None
    rig.ledger.confirm_database("shop", identity, "operator")
    rig.open()
    assert {verdict for (verdict,) in rig.rows("SELECT verdict FROM floodmark.verdicts")} == {"repairing"}
    for _ in range(2):
        rig.finish(rig.load_planner().open_pending())
    assert rig.differing() == []


def test_first_load_from_a_wrong_database_binds_no_pipeline_to_it(
    rig: SwitchRig, production: CdcDatabase, elsewhere: CdcDatabase
) -> None:
    moved(rig, elsewhere)
    rig.open()
    moved(rig, production)
    rig.run()
    rig.change("INSERT INTO dbo.Orders VALUES (3, 3)")
    rig.run()
    assert rig.differing() == []
    known = rig.ledger.read_database("shop")
    assert known == SqlServerSource(rig.at).read_snapshot([]).identity


def test_window_that_was_planned_for_one_database_is_not_merged_from_another(
    rig: SwitchRig, elsewhere: CdcDatabase
) -> None:
    opened = rig.open()
    assert opened.window_id is not None
    identity = SqlServerSource(replace(rig.at, database=elsewhere.name)).read_snapshot([]).identity
    assert identity is not None
    rig.ledger.confirm_database("shop", identity, "operator")
    with pytest.raises(OtherDatabaseError, match="nothing was merged"):
        load_window(
            opened.window_id,
            rig.ledger,
            rig.warehouse,
            SqlServerSource(rig.at),
            InProcessStager(reading(rig.at)),
        )
