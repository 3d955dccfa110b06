"""Schema drift of tables with change tracking: columns are compared at each run, as there is no history of DDL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from emulator_process import Emulator
from floodmark.core.errors import TableHeldError
from floodmark.core.settings import DriftClass, DriftPolicies, DriftPolicy
from floodmark.core.snapshot import Verdict
from floodmark.postgres.ledger.drift import PostgresDriftLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.change_tracking.source import TRACKING_DRIFT_WORDS, TrackingDriftSource
from floodmark.sync.drift_watch import DriftWatch, WatchedSource
from floodmark.sync.open_window import open_window
from floodmark.sync.records import DriftEvent
from floodmark.sync.window import OpenResult
from raised_alerts import RaisedAlerts
from tracking_rig import PIPELINE, TrackingRig, tracked_tables, tracking_rig

TABLES = (
    "CREATE TABLE dbo.Orders (Id int NOT NULL CONSTRAINT PK_Orders PRIMARY KEY, Amount int, Note nvarchar(20))",
    "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    "CREATE TABLE dbo.Lines (Id int NOT NULL PRIMARY KEY)",
    "ALTER TABLE dbo.Lines ENABLE CHANGE_TRACKING",
    "INSERT dbo.Orders VALUES (1, 1, N'one'), (2, 2, N'two')",
    "INSERT dbo.Lines VALUES (1)",
)
CDC_ONLY = ("capture", "change table", "LSN", "sp_cdc", "dm_cdc", "DDL history does not")


@dataclass
class Watched:
    """A pipeline of two loaded tables, and the watch over their source."""

    rig: TrackingRig
    drift: PostgresDriftLedger
    alerts: RaisedAlerts

    @property
    def watch(self) -> DriftWatch:
        source = WatchedSource(
            "express",
            [self.rig.settings],
            lambda: TrackingDriftSource(self.rig.at),
            self.drift,
            self.alerts,
            TRACKING_DRIFT_WORDS,
        )
        return DriftWatch(source, PostgresWarehouse(self.rig.warehouse).drop_staging)

    def open(self) -> OpenResult:
        return open_window(self.rig.settings, self.rig.source, self.rig.ledger, self.watch)

    def sync(self) -> OpenResult:
        return self.rig.finish(self.open())

    def check(self) -> list[DriftEvent]:
        """Watch for drift as the drift DAG does. Return all events."""
        self.watch.watch(self.rig.source, {PIPELINE: self.rig.ledger.read_tables(PIPELINE)})
        return list(self.drift.list_events())

    def alter(self, *statements: str) -> DriftEvent:
        """Return the only event about a change of the source, which has one alert without words of CDC."""
        before = len(self.drift.list_events())
        self.rig.run(*statements)
        events = self.check()
        assert len(events) == before + 1
        alert = self.alerts.raised[-1]
        shown = " ".join((alert.what, alert.where, alert.means, alert.do))
        assert [words for words in CDC_ONLY if words in shown] == []
        return events[-1]

    def kinds(self) -> list[DriftClass]:
        return [event.explained.difference.kind for event in self.check()]

    def held(self) -> list[str]:
        return [str(table) for table in self.drift.list_holds(PIPELINE)]


@pytest.fixture
def watched(emulator: Emulator, database: WarehouseConnection) -> Iterator[Watched]:
    chosen = DriftPolicies(((DriftClass.COLUMN_ADDED, DriftPolicy.ALERT),))
    settings = tracked_tables("Orders", "Lines", drift=chosen)
    with tracking_rig(emulator, database, settings, TABLES) as rig:
        made = Watched(rig, PostgresDriftLedger(database), RaisedAlerts())
        made.sync()
        assert made.check() == []
        yield made


def test_added_column_is_read_from_then_on(watched: Watched) -> None:
    event = watched.alter("ALTER TABLE dbo.Orders ADD Region nvarchar(9) NOT NULL DEFAULT N'north'")
    assert event.explained.difference.kind is DriftClass.COLUMN_ADDED
    [alert] = watched.alerts.raised
    assert "column Region nvarchar(9) was added" in alert.what
    assert "no history of DDL" in alert.what
    assert "by its default" in alert.means
    assert "floodmark reload" in alert.do
    assert event.held == ()
    watched.rig.run("UPDATE dbo.Orders SET Amount = 10 WHERE Id = 1")
    watched.sync()
    # The row that no transaction changed has the value of the default at the source only.
    assert watched.rig.rows('SELECT "Id", "Region" FROM shop.orders ORDER BY 1') == [(1, "north"), (2, None)]
    assert watched.kinds() == [DriftClass.COLUMN_ADDED]


def test_added_column_may_hold_the_table(watched: Watched) -> None:
    chosen = DriftPolicies(((DriftClass.COLUMN_ADDED, DriftPolicy.HOLD),))
    watched.rig.settings = tracked_tables("Orders", "Lines", drift=chosen)
    event = watched.alter("ALTER TABLE dbo.Orders ADD Region int")
    assert watched.held() == ["dbo.Orders"]
    watched.rig.run("UPDATE dbo.Orders SET Region = 7 WHERE Id = 1", "INSERT dbo.Lines VALUES (2)")
    watched.sync()
    assert watched.rig.rows("SELECT count(*) FROM shop.lines") == [(2,)]
    watched.drift.approve(event.event_id, "test")
    watched.sync()
    assert watched.rig.differing() == []


def test_dropped_column_keeps_its_values_in_the_target(watched: Watched) -> None:
    event = watched.alter("ALTER TABLE dbo.Orders DROP COLUMN Note")
    assert event.explained.difference.kind is DriftClass.COLUMN_DROPPED
    watched.rig.run("UPDATE dbo.Orders SET Amount = 10 WHERE Id = 1")
    watched.sync()
    assert watched.rig.rows('SELECT "Amount", "Note" FROM shop.orders ORDER BY 1') == [(2, "two"), (10, "one")]


def test_column_that_was_dropped_and_added_again_is_two_events(watched: Watched) -> None:
    watched.rig.run("ALTER TABLE dbo.Orders DROP COLUMN Note", "ALTER TABLE dbo.Orders ADD Note nvarchar(20)")
    assert watched.kinds() == [DriftClass.COLUMN_DROPPED, DriftClass.COLUMN_ADDED]
    # So is one that was renamed.
    watched.rig.run("EXEC sp_rename 'dbo.Orders.Note', 'Remark', 'COLUMN'")
    assert watched.kinds() == [DriftClass.COLUMN_DROPPED, DriftClass.COLUMN_ADDED] * 2


def test_widened_type_widens_the_target(watched: Watched) -> None:
    event = watched.alter("ALTER TABLE dbo.Orders ALTER COLUMN Amount bigint")
    assert event.explained.difference.kind is DriftClass.TYPE_WIDENED
    watched.rig.run("UPDATE dbo.Orders SET Amount = 5000000000 WHERE Id = 1")
    watched.sync()
    assert watched.rig.differing() == []


@pytest.mark.parametrize(
    ("declared", "kind"), [("nvarchar(5)", DriftClass.TYPE_NARROWED), ("datetime2(0)", DriftClass.TYPE_CHANGED)]
)
def test_narrowed_or_changed_type_holds_the_table(watched: Watched, declared: str, kind: DriftClass) -> None:
    watched.rig.run("UPDATE dbo.Orders SET Note = NULL")
    watched.sync()
    event = watched.alter(f"ALTER TABLE dbo.Orders ALTER COLUMN Note {declared}")
    assert event.explained.difference.kind is kind
    assert watched.held() == ["dbo.Orders"]
    watched.rig.run("INSERT dbo.Lines VALUES (2)", "UPDATE dbo.Orders SET Amount = 3 WHERE Id = 1")
    watched.sync()
    assert watched.rig.rows('SELECT "Amount" FROM shop.orders WHERE "Id" = 1') == [(1,)]
    assert watched.rig.rows("SELECT count(*) FROM shop.lines") == [(2,)]


def test_renamed_table_is_held_until_it_has_its_name_again(watched: Watched) -> None:
    event = watched.alter("EXEC sp_rename 'dbo.Orders', 'Sales'")
    difference = event.explained.difference
    assert (difference.kind, difference.after) == (DriftClass.TABLE_RENAMED, "dbo.Sales")
    assert watched.held() == ["dbo.Orders"]
    watched.rig.run("EXEC sp_rename 'dbo.Sales', 'Orders'", "UPDATE dbo.Orders SET Amount = 10 WHERE Id = 1")
    watched.check()
    assert watched.held() == []
    watched.sync()
    assert watched.rig.differing() == []


def test_tracking_that_was_switched_off_holds_the_table_until_it_is_on_again(watched: Watched) -> None:
    event = watched.alter("ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING")
    assert event.explained.difference.kind is DriftClass.CDC_DISABLED
    assert "ENABLE CHANGE_TRACKING" in watched.alerts.raised[-1].do
    watched.rig.run("INSERT dbo.Lines VALUES (2)")
    watched.sync()
    watched.rig.run("ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING")
    watched.check()
    assert watched.held() == []
    assert watched.rig.verdicts()["Orders"] is Verdict.INSTANCE_REPLACED
    assert watched.alerts.ended == [f"schema_drift:{event.event_id}"]
    # Off once more, before anything was reloaded: found once more.
    assert watched.alter("ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING").explained.difference.kind is (
        DriftClass.CDC_DISABLED
    )
    assert watched.held() == ["dbo.Orders"]


def test_changed_key_holds_the_table(watched: Watched) -> None:
    watched.rig.run(
        "ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING",
        "ALTER TABLE dbo.Orders DROP CONSTRAINT PK_Orders",
        "ALTER TABLE dbo.Orders ALTER COLUMN Amount int NOT NULL",
        "ALTER TABLE dbo.Orders ADD PRIMARY KEY (Id, Amount)",
        "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    )
    assert DriftClass.KEY_CHANGED in watched.kinds()
    assert watched.held() == ["dbo.Orders"]
    [alert] = [each for each in watched.alerts.raised if "its key was changed" in each.what]
    assert "declare" not in alert.do


def test_dropped_table_is_held_and_a_run_without_another_fails(watched: Watched) -> None:
    event = watched.alter("DROP TABLE dbo.Orders")
    assert event.explained.difference.kind is DriftClass.TABLE_DROPPED
    assert watched.held() == ["dbo.Orders"]
    watched.alter("DROP TABLE dbo.Lines")
    with pytest.raises(TableHeldError):
        watched.sync()


@pytest.mark.parametrize("ddl", ["DROP COLUMN Note", "ADD Region int"])
def test_window_that_was_planned_before_the_ddl_is_planned_again(watched: Watched, ddl: str) -> None:
    watched.rig.run("UPDATE dbo.Orders SET Amount = 10 WHERE Id = 1", "INSERT dbo.Lines VALUES (2)")
    planned = watched.open().window_id
    watched.rig.run(f"ALTER TABLE dbo.Orders {ddl}")
    continued = watched.open()
    assert continued.window_id == planned
    assert [str(table.source) for table in watched.rig.ledger.read_window(planned or 0).plan.tables] == ["dbo.Lines"]
    watched.rig.finish(continued)
    watched.sync()
    assert watched.rig.rows('SELECT "Amount" FROM shop.orders WHERE "Id" = 1') == [(10,)]
    assert watched.rig.rows("SELECT count(*) FROM shop.lines") == [(2,)]
