"""Copies of a source: the rows of a window are read only where the copy that answers has all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import SourceBehindError
from floodmark.core.position import Lsn
from floodmark.core.schema import TableName
from floodmark.core.settings import OnGap
from floodmark.core.snapshot import SourceSnapshot
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.repair import LoadPlanner
from in_process_stager import InProcessStager
from row_verification import reading


@dataclass
class LaggingReplica:
    """A readable replica that has come no further than an older snapshot."""

    snapshot: SourceSnapshot

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        feeds: Mapping[TableName, str] | None = None,
        positions: Collection[Lsn] = (),
        marks: object = None,
        whole: object = (),
    ) -> SourceSnapshot:
        return replace(self.snapshot, is_replica=True, capture_running=None, entries=dict.fromkeys(positions))


def made(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as database:
        database.run("CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Amount int)")
        database.enable("Orders")
        database.run("INSERT INTO dbo.Orders VALUES (1, 1)")
        database.scan()
        yield database


@pytest.fixture
def behind(emulator: Emulator) -> Iterator[CdcDatabase]:
    """A database with the same table, whose log ends before that of ``source`` begins to grow."""
    yield from made(emulator)


@pytest.fixture
def source(behind: CdcDatabase, emulator: Emulator) -> Iterator[CdcDatabase]:
    assert behind.name
    yield from made(emulator)


@pytest.fixture
def rig(emulator: Emulator, source: CdcDatabase, database: WarehouseConnection) -> SwitchRig:
    return SwitchRig(emulator, source, database)


@pytest.fixture
def copy(rig: SwitchRig, behind: CdcDatabase) -> SqlServerConnection:
    return replace(rig.at, database=behind.name)


def load_from(rig: SwitchRig, window_id: int | None, copy: SqlServerConnection) -> None:
    """Load a window with control queries answered by the source, and rows by another copy."""
    assert window_id is not None
    stager = InProcessStager(reading(copy))
    load_window(window_id, rig.ledger, rig.warehouse, SqlServerSource(rig.at), stager)


def test_rows_are_not_read_from_a_copy_whose_log_is_another_one(
    rig: SwitchRig, copy: SqlServerConnection, behind: CdcDatabase
) -> None:
    rig.run()
    rig.change("INSERT INTO dbo.Orders VALUES (2, 2)")
    opened = rig.open()
    behind.run("INSERT INTO dbo.Orders VALUES (3, 3)")
    behind.scan()
    with pytest.raises(SourceBehindError, match="another log"):
        load_from(rig, opened.window_id, copy)
    assert rig.rows("SELECT count(*) FROM shop.orders") == [(1,)]
    rig.run()
    assert rig.differing() == []


def test_snapshot_of_a_replica_that_lags_is_neither_a_gap_nor_a_drift(rig: SwitchRig) -> None:
    rig.run()
    replica = LaggingReplica(SqlServerSource(rig.at).read_snapshot([ORDERS]))
    rig.change("ALTER TABLE dbo.Orders ADD Note int", "INSERT INTO dbo.Orders VALUES (2, 2, 2)")
    rig.run()
    settings = rig.pipelines[0]
    repairing = replace(settings, tables=(replace(settings.tables[0], on_gap=OnGap.REPAIR),))
    events = rig.rows("SELECT event_id FROM floodmark.drift_events")
    for opening in (
        lambda: open_window(repairing, replica, rig.ledger, rig.watch),
        lambda: LoadPlanner(repairing, replica, rig.ledger, rig.warehouse, rig.watch).open_reload(ORDERS),
        lambda: rig.watch.watch(replica, {"shop": rig.ledger.read_tables("shop")}),
    ):
        with pytest.raises(SourceBehindError, match="readable replica") as caught:
            opening()
        assert caught.value.retryable
    assert rig.rows("SELECT verdict FROM floodmark.verdicts") == [("replica_behind",)]
    assert rig.rows("SELECT count(*) FROM floodmark.windows WHERE state <> 'advanced'") == [(0,)]
    assert rig.rows("SELECT event_id FROM floodmark.drift_events") == events
    rig.change("INSERT INTO dbo.Orders VALUES (3, 3, 3)")
    rig.run()
    assert rig.differing() == []


def test_rows_that_were_read_are_verified_by_a_copy_that_has_the_window(rig: SwitchRig) -> None:
    rig.run()
    replica = LaggingReplica(SqlServerSource(rig.at).read_snapshot([ORDERS]))
    rig.change("INSERT INTO dbo.Orders VALUES (2, 2)")
    opened = rig.open()
    assert opened.window_id is not None
    with pytest.raises(SourceBehindError, match="readable replica"):
        load_window(opened.window_id, rig.ledger, rig.warehouse, replica, InProcessStager(reading(rig.at)))
    rig.run()
    assert rig.differing() == []
