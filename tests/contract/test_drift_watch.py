"""Schema drift from a tracked table to the person who is notified: on the emulator and a real ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import OperatorError, TableHeldError
from floodmark.core.plan import WindowPlan
from floodmark.core.planning import pinned_feeds
from floodmark.core.schema import TableName
from floodmark.core.settings import DriftClass, DriftPolicies, DriftPolicy, PipelineSettings, TableSettings
from floodmark.postgres.ledger.drift import PostgresDriftLedger
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.operations import SqlServerDriftSource
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync.drift_watch import DriftWatch, WatchedSource
from floodmark.sync.open_window import open_window
from floodmark.sync.records import DriftEvent, Examined
from floodmark.sync.window import OpenResult
from raised_alerts import RaisedAlerts

ORDERS = TableName("dbo", "Orders")
PLAIN = TableName("dbo", "Plain")


@dataclass
class Watched:
    """A source of two tables, dbo.Orders and dbo.Plain, its ledger, and the watch over it."""

    database: CdcDatabase
    source: SqlServerSource
    ledger: PostgresLedger
    drift: PostgresDriftLedger
    watch: DriftWatch
    alerts: RaisedAlerts
    settings: PipelineSettings

    def change(self, *statements: str) -> None:
        """Run the statements of a user at the source, and capture their changes."""
        self.database.run(*statements)
        self.database.scan()

    def check(self, *, closely: bool = True) -> Examined:
        """closely: as the drift DAG does; else as a run does."""
        states = self.ledger.read_tables(self.settings.name)
        if closely:
            self.watch.watch(self.source, {self.settings.name: states})
        snapshot = self.source.read_snapshot(self.settings.sources, pinned_feeds(self.settings, states))
        return self.watch.examine(self.settings, snapshot, states)

    def open(self) -> OpenResult:
        return open_window(self.settings, self.source, self.ledger, self.watch)

    def publish(self) -> WindowPlan:
        """A run, but for the rows."""
        opened = self.open()
        assert opened.window_id is not None
        plan = self.ledger.begin_load(opened.window_id).plan
        self.execute(f"UPDATE floodmark.windows SET state = 'merged' WHERE window_id = {plan.window_id}")
        self.ledger.mark_checked(plan.window_id)
        self.ledger.advance(plan.window_id)
        return plan

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.warehouse.conninfo(), autocommit=True) as session:
            session.execute(statement)

    warehouse: WarehouseConnection = field(kw_only=True)

    def events(self) -> list[DriftEvent]:
        return list(self.drift.list_events("shop"))

    def found(self) -> list[tuple[DriftClass, str | None]]:
        return [(event.explained.difference.kind, event.explained.difference.column) for event in self.events()]


def settings_with(**policies: DriftPolicy) -> PipelineSettings:
    drift = DriftPolicies(tuple((DriftClass(kind), policy) for kind, policy in policies.items()))
    return PipelineSettings(
        "shop",
        (
            TableSettings(ORDERS, TableName("shop", "orders"), drift=drift),
            TableSettings(PLAIN, TableName("shop", "plain"), drift=drift),
        ),
    )


@pytest.fixture
def watched(emulator: Emulator, database: WarehouseConnection, ledger: PostgresLedger) -> Iterator[Watched]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount decimal(18,2), Note nvarchar(50), Code int)",
            "CREATE TABLE dbo.Plain (Id int NOT NULL PRIMARY KEY, Secret int)",
        )
        made.enable("Orders")
        made.enable("Plain", captured_column_list="N'Id'", supports_net_changes="0")
        yield watch_over(emulator, made, database, ledger, settings_with())


def watch_over(
    emulator: Emulator,
    made: CdcDatabase,
    database: WarehouseConnection,
    ledger: PostgresLedger,
    settings: PipelineSettings,
) -> Watched:
    at = SqlServerConnection(
        emulator.host, emulator.port, made.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
    )
    alerts, drift = RaisedAlerts(), PostgresDriftLedger(database)
    source = WatchedSource("shop", [settings], lambda: SqlServerDriftSource(at), drift, alerts)
    watch = DriftWatch(source, lambda window_id: None, details_seconds=0)
    return Watched(made, SqlServerSource(at), ledger, drift, watch, alerts, settings, warehouse=database)


def decided(watched: Watched, **policies: DriftPolicy) -> Watched:
    """The same source under another configuration."""
    return under(watched, settings_with(**policies))


def under(watched: Watched, settings: PipelineSettings) -> Watched:
    source = replace(watched.watch.source, pipelines=[settings])
    return replace(watched, settings=settings, watch=replace(watched.watch, source=source))


@pytest.fixture
def detailed(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The instances whose details were read, by a watch that reads them once an hour."""
    asked: list[str] = []
    read_drift = SqlServerDriftSource.read_drift

    def recorded(source: SqlServerDriftSource, instances: Any) -> Any:
        asked.extend(instances)
        return read_drift(source, instances)

    monkeypatch.setattr(SqlServerDriftSource, "read_drift", recorded)
    watched.watch = replace(watched.watch, details_seconds=3600.0)
    return asked


def test_details_of_tables_as_they_were_known_are_read_once_an_hour(watched: Watched, detailed: list[str]) -> None:
    watched.check()
    assert len(detailed) == len(watched.settings.sources)
    detailed.clear()
    watched.check()
    assert detailed == []
    watched.execute("UPDATE floodmark.drift_shapes SET seen_at = now() - interval '1 hour'")
    watched.check()
    assert len(detailed) == len(watched.settings.sources)
    detailed.clear()
    watched.check()
    assert detailed == []


def test_details_are_read_until_an_event_has_its_ddl(watched: Watched, detailed: list[str]) -> None:
    watched.check()
    watched.database.run("ALTER TABLE dbo.Orders ADD Later int NULL")
    detailed.clear()
    for number in (1, 2, 3):
        watched.check()
        assert detailed == ["dbo_Orders"] * number
    watched.database.run("INSERT INTO dbo.Orders (Id) VALUES (901)")
    watched.database.scan()
    watched.check()
    (event,) = [each for each in watched.drift.list_events("shop") if each.explained.difference.column == "Later"]
    assert event.explained.entries
    detailed.clear()
    watched.check()
    assert detailed == []


def test_first_check_of_tables_as_they_were_made_finds_nothing(watched: Watched) -> None:
    watched.check()
    watched.check()
    assert (watched.events(), watched.alerts.raised) == ([], [])


def test_an_added_column_is_reported_once_with_its_ddl_and_the_exact_statement(watched: Watched) -> None:
    watched.check()
    watched.change("INSERT dbo.Orders (Id) VALUES (1), (2), (3)", "ALTER TABLE dbo.Orders ADD Colour nvarchar(20) NULL")
    watched.change("UPDATE dbo.Orders SET Code = 1, Colour = N'red' WHERE Id < 3", "DELETE dbo.Orders WHERE Id = 3")
    watched.check()
    watched.check()
    assert watched.found() == [(DriftClass.COLUMN_ADDED, "Colour")]
    (alert,) = watched.alerts.raised
    assert (alert.kind, alert.subject, alert.table) == ("schema_drift", "shop", ORDERS)
    at_risk = "2 changes captured since the DDL without it; any of the table's 2 rows that has a value in it."
    assert f"Rows at risk: {at_risk} DDL at LSN" in alert.what
    (event,) = watched.events()
    (entry,) = event.explained.entries
    assert "ALTER TABLE dbo.Orders ADD Colour nvarchar(20) NULL" in alert.what
    assert str(entry.position) in alert.what
    assert "@captured_column_list = N'[Id], [Amount], [Note], [Code], [Colour]'" in alert.do
    statement = event.proposal
    watched.database.run(statement)
    instances = watched.database.query("EXEC sys.sp_cdc_help_change_data_capture")
    made = next(row for row in instances if row["capture_instance"] == "dbo_Orders_2")
    assert made["captured_column_list"] == "[Id], [Amount], [Note], [Code], [Colour]"


CASES: list[tuple[str, DriftClass, str, DriftPolicy]] = [
    ("ALTER TABLE dbo.Orders DROP COLUMN Note", DriftClass.COLUMN_DROPPED, "Note", DriftPolicy.ALERT),
    ("ALTER TABLE dbo.Orders ALTER COLUMN Code bigint", DriftClass.TYPE_WIDENED, "Code", DriftPolicy.EVOLVE),
    ("ALTER TABLE dbo.Orders ALTER COLUMN Note nvarchar(10)", DriftClass.TYPE_NARROWED, "Note", DriftPolicy.HOLD),
    ("ALTER TABLE dbo.Orders ALTER COLUMN Code nvarchar(20)", DriftClass.TYPE_CHANGED, "Code", DriftPolicy.HOLD),
    (
        "ALTER TABLE dbo.Orders ALTER COLUMN Code int NOT NULL",
        DriftClass.NULLABILITY_CHANGED,
        "Code",
        DriftPolicy.ALERT,
    ),
]


@pytest.mark.parametrize(("statement", "kind", "column", "policy"), CASES, ids=[case[1].value for case in CASES])
def test_a_change_of_a_column_is_classified_and_its_policy_kept(
    watched: Watched, statement: str, kind: DriftClass, column: str, policy: DriftPolicy
) -> None:
    watched.check()
    watched.change(statement)
    examined = watched.check(closely=False)
    (event,) = watched.events()
    assert watched.found() == [(kind, column)]
    assert event.explained.entries[0].text == statement
    assert event.policies == {"shop": policy}
    assert list(examined.holds) == ([ORDERS] if policy is DriftPolicy.HOLD else [])
    assert len(watched.alerts.raised) == 1


def test_a_held_table_stops_alone_and_catches_up_when_it_is_approved(watched: Watched) -> None:
    first = watched.publish()
    watched.change(
        "INSERT INTO dbo.Orders (Id) VALUES (1)",
        "INSERT INTO dbo.Plain (Id) VALUES (1)",
        "ALTER TABLE dbo.Orders ALTER COLUMN Code nvarchar(20)",
    )
    second = watched.publish()
    assert [table.source for table in second.tables] == [PLAIN]
    states = watched.ledger.read_tables("shop")
    assert (states[ORDERS].watermark, states[PLAIN].watermark) == (first.to, second.to)
    (event,) = watched.events()
    assert event.held == ("shop",)
    watched.drift.approve(event.event_id, "tester")
    watched.change("INSERT INTO dbo.Plain (Id) VALUES (2)")
    third = watched.publish()
    (orders,) = [table for table in third.tables if table.source == ORDERS]
    assert orders.interval is not None
    assert (orders.interval.after, orders.interval.to) == (first.to, third.to)


def test_the_verdict_of_a_held_table_names_the_drift_and_the_command(watched: Watched, ledger: PostgresLedger) -> None:
    watched.publish()
    watched.change("ALTER TABLE dbo.Orders ALTER COLUMN Code nvarchar(20)", "INSERT INTO dbo.Plain (Id) VALUES (1)")
    watched.publish()
    ((verdict, cause, hint),) = rows(
        watched, "SELECT verdict, cause, hint FROM floodmark.verdicts WHERE source_name = 'Orders'"
    )
    assert verdict == "held"
    assert "column Code was changed from int to nvarchar(20), another kind of value" in cause
    assert "floodmark drift approve 1" in hint


def test_a_pipeline_whose_tables_are_all_held_fails_and_says_why(watched: Watched) -> None:
    watched.publish()
    watched.change(
        "ALTER TABLE dbo.Orders ALTER COLUMN Code nvarchar(20)",
        "EXEC sys.sp_cdc_disable_table N'dbo', N'Plain', N'all'",
    )
    with pytest.raises(TableHeldError, match=r"every table is held\. dbo\.Orders: held: .* dbo\.Plain: held: "):
        watched.open()


def test_a_table_that_drifts_after_its_window_was_planned_leaves_the_window_to_the_others(watched: Watched) -> None:
    watched.publish()
    watched.change("INSERT INTO dbo.Orders (Id) VALUES (1)", "INSERT INTO dbo.Plain (Id) VALUES (1)")
    planned = watched.open()
    assert planned.window_id is not None
    old = watched.ledger.begin_load(planned.window_id).plan
    watched.change("ALTER TABLE dbo.Orders ALTER COLUMN Code nvarchar(20)")
    resumed = watched.open()
    assert resumed.window_id == planned.window_id
    now = watched.ledger.read_window(planned.window_id).plan
    assert [table.source for table in now.tables] == [PLAIN]
    assert now.attempt > old.attempt


def test_a_window_of_nothing_but_a_drifted_table_is_given_up_and_loses_nothing(watched: Watched) -> None:
    first = watched.publish()
    watched.change("INSERT INTO dbo.Orders (Id) VALUES (1)")
    planned = watched.open()
    watched.execute("DELETE FROM floodmark.window_tables WHERE source_name = 'Plain'")
    watched.execute(
        "UPDATE floodmark.windows SET plan = jsonb_set(plan, '{tables}', jsonb_build_array("
        "(SELECT t FROM jsonb_array_elements(plan->'tables') AS t WHERE t->'source'->>1 = 'Orders')))"
        f" WHERE window_id = {planned.window_id}"
    )
    watched.change("ALTER TABLE dbo.Orders ALTER COLUMN Code nvarchar(20)", "INSERT INTO dbo.Plain (Id) VALUES (1)")
    opened = watched.open()
    assert opened.window_id not in (None, planned.window_id)
    assert watched.ledger.read_tables("shop")[ORDERS].watermark == first.to


def test_a_dropped_column_is_not_in_the_plan_nor_is_one_of_its_name_that_came_later(watched: Watched) -> None:
    watched.publish()
    watched.change(
        "ALTER TABLE dbo.Orders DROP COLUMN Note",
        "ALTER TABLE dbo.Orders ADD Note nvarchar(50)",
        "INSERT INTO dbo.Orders (Id, Note) VALUES (1, N'new')",
    )
    plan = watched.publish()
    (orders,) = [table for table in plan.tables if table.source == ORDERS]
    assert [column.name for column in orders.feed.table.columns] == ["Id", "Amount", "Code"]
    assert watched.found() == [(DriftClass.COLUMN_DROPPED, "Note"), (DriftClass.COLUMN_ADDED, "Note")]
    watched.change("INSERT INTO dbo.Orders (Id, Note) VALUES (2, N'new')")
    (orders,) = [table for table in watched.publish().tables if table.source == ORDERS]
    assert "Note" not in [column.name for column in orders.feed.table.columns]


def test_a_renamed_table_is_held_and_goes_on_by_itself_when_it_is_renamed_back(watched: Watched) -> None:
    watched.publish()
    watched.change("EXEC sp_rename N'dbo.Orders', N'Purchases'", "INSERT INTO dbo.Plain (Id) VALUES (1)")
    assert [table.source for table in watched.publish().tables] == [PLAIN]
    (event,) = watched.events()
    assert (event.explained.difference.kind, event.explained.difference.after) == (
        DriftClass.TABLE_RENAMED,
        "dbo.Purchases",
    )
    watched.check()
    watched.change("EXEC sp_rename N'dbo.Purchases', N'Orders'", "INSERT INTO dbo.Orders (Id) VALUES (1)")
    assert ORDERS in [table.source for table in watched.publish().tables]
    assert watched.alerts.ended == [f"schema_drift:{event.event_id}"]
    assert len(watched.alerts.raised) == 1


def test_a_dropped_table_is_held_and_the_others_go_on(watched: Watched) -> None:
    watched.publish()
    watched.change("DROP TABLE dbo.Orders", "INSERT INTO dbo.Plain (Id) VALUES (1)")
    assert [table.source for table in watched.publish().tables] == [PLAIN]
    assert watched.found() == [(DriftClass.TABLE_DROPPED, None)]


def test_a_replaced_instance_holds_the_table_also_where_nobody_checked_in_between(watched: Watched) -> None:
    watched.publish()
    watched.change("EXEC sys.sp_cdc_disable_table N'dbo', N'Orders', N'all'", "INSERT INTO dbo.Plain (Id) VALUES (1)")
    watched.database.enable("Orders")
    assert [table.source for table in watched.publish().tables] == [PLAIN]
    assert watched.found() == [(DriftClass.INSTANCE_REPLACED, None)]


def test_a_table_that_only_alerts_on_a_disabled_instance_fails_the_run_as_any_gap_does(watched: Watched) -> None:
    watched = decided(watched, cdc_disabled=DriftPolicy.ALERT)
    watched.publish()
    watched.change("EXEC sys.sp_cdc_disable_table N'dbo', N'Orders', N'all'")
    with pytest.raises(Exception, match="instance_missing"):
        watched.open()
    assert watched.found() == [(DriftClass.CDC_DISABLED, None)]


def test_a_changed_key_holds_the_table(watched: Watched) -> None:
    # A key that the instance was made with cannot be dropped (error 22979); one that came later can.
    watched.change("CREATE TABLE dbo.Keyed (Id int NOT NULL, Other int NOT NULL)")
    watched.database.enable("Keyed", supports_net_changes="0")
    watched.change("ALTER TABLE dbo.Keyed ADD CONSTRAINT pk PRIMARY KEY (Id)")
    keyed = TableName("dbo", "Keyed")
    watched = under(watched, PipelineSettings("shop", (TableSettings(keyed, TableName("shop", "keyed")),)))
    watched.check()
    watched.change(
        "ALTER TABLE dbo.Keyed DROP CONSTRAINT pk", "ALTER TABLE dbo.Keyed ADD CONSTRAINT pk PRIMARY KEY (Other)"
    )
    examined = watched.check()
    assert (DriftClass.KEY_CHANGED, None) in watched.found()
    assert list(examined.holds) == [keyed]


def test_a_column_left_out_on_purpose_is_no_drift_but_a_later_change_of_it_is_reported(watched: Watched) -> None:
    watched.check()
    watched.change("ALTER TABLE dbo.Plain ALTER COLUMN Secret nvarchar(20)")
    examined = watched.check()
    assert watched.found() == [(DriftClass.TYPE_CHANGED, "Secret")]
    assert not examined.holds


def test_ddl_that_leaves_no_difference_is_reported_once_as_unknown(watched: Watched) -> None:
    watched.check()
    watched.change("ALTER TABLE dbo.Orders ADD Gone int", "ALTER TABLE dbo.Orders DROP COLUMN Gone")
    watched.check()
    watched.check()
    assert {kind for kind, _ in watched.found()} == {DriftClass.UNKNOWN}
    assert len(watched.found()) == len(watched.alerts.raised) == 2


def test_an_event_found_before_the_history_shows_it_gets_its_ddl_later_and_is_reported_once(watched: Watched) -> None:
    watched.check()
    watched.database.run("ALTER TABLE dbo.Orders ADD Colour nvarchar(20) NULL")
    watched.check()
    (event,) = watched.events()
    assert event.explained.entries == ()
    watched.database.scan()
    watched.check()
    (event,) = watched.events()
    assert [entry.text for entry in event.explained.entries] == ["ALTER TABLE dbo.Orders ADD Colour nvarchar(20) NULL"]
    assert len(watched.alerts.raised) == 1


def test_what_is_ignored_enters_the_ledger_and_nobody_is_notified(watched: Watched) -> None:
    watched = decided(watched, column_added=DriftPolicy.IGNORE)
    watched.check()
    watched.change("ALTER TABLE dbo.Orders ADD Colour nvarchar(20) NULL")
    watched.check()
    assert watched.found() == [(DriftClass.COLUMN_ADDED, "Colour")]
    assert watched.alerts.raised == []


def test_newest_instance_with_fewer_columns_is_reported_until_one_of_the_two_is_chosen(watched: Watched) -> None:
    watched.database.enable("Orders", capture_instance="N'theirs'", captured_column_list="N'Id,Note'")
    for _ in range(2):
        snapshot = watched.check().snapshot
        assert snapshot.tables[0].feed is not None
        assert snapshot.tables[0].feed.identity.name == "theirs"
    alert, again = watched.alerts.raised
    assert (alert.kind, alert.table, again) == ("columns_left_out", ORDERS, alert)
    assert alert.what == (
        "capture instance theirs, which is read, lacks columns that the older dbo_Orders has: Amount, Code."
    )
    assert "set capture_instance: dbo_Orders" in alert.do
    assert watched.alerts.ended == []
    snapshot = watched.source.read_snapshot([PLAIN])
    watched.watch.examine(watched.settings, snapshot, {})
    assert watched.alerts.ended == []
    for chosen in ("dbo_Orders", "theirs"):
        orders = replace(watched.settings.tables[0], capture_instance=chosen)
        pinned = replace(watched, settings=replace(watched.settings, tables=(orders,)))
        pinned.check()
        assert watched.alerts.ended == [alert.event_key]
    assert len(watched.alerts.raised) == 2


def test_second_instance_with_more_columns_is_no_news(watched: Watched) -> None:
    watched.check()
    watched.change("ALTER TABLE dbo.Plain ADD More int")
    watched.check()
    reported = len(watched.alerts.raised)
    watched.database.enable("Plain", capture_instance="N'wider'", supports_net_changes="0")
    watched.check()
    watched.check()
    assert [alert.kind for alert in watched.alerts.raised[reported:]] == []


def test_an_event_whose_finder_died_is_reported_by_the_next_check(watched: Watched) -> None:
    watched.check()
    watched.change("ALTER TABLE dbo.Orders ADD Colour nvarchar(20) NULL")
    watched.check()
    watched.execute("UPDATE floodmark.drift_events SET told_at = NULL")
    watched.check()
    assert [alert.event_key for alert in watched.alerts.raised] == ["schema_drift:1", "schema_drift:1"]


def test_releasing_a_table_ends_all_its_holds_and_one_that_is_not_held_is_refused(watched: Watched) -> None:
    watched.check()
    watched.change(
        "ALTER TABLE dbo.Orders ALTER COLUMN Code nvarchar(20)", "ALTER TABLE dbo.Orders ALTER COLUMN Note nvarchar(5)"
    )
    assert list(watched.check().holds) == [ORDERS]
    assert watched.drift.release("shop", ORDERS, "tester") == [1, 2]
    assert not watched.check().holds
    with pytest.raises(OperatorError, match="pipeline shop does not hold it"):
        watched.drift.release("shop", ORDERS, "tester")


def rows(watched: Watched, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(watched.warehouse.conninfo()) as session:
        return session.execute(query).fetchall()
