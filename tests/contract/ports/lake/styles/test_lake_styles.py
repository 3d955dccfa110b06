"""Histories in a lake: at each commit the rows of the source, in any order of windows, and as PostgreSQL has them.

FLOODMARK_SCHEDULE_SEEDS=20 draws more histories than are drawn each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from lake_rig import SMALL, LakeRig, LakeSwitchRig, quarantined
from pyiceberg.table import StaticTable
from test_history_order import (
    CONTENT,
    HistoryReader,
    Windows,
    by_key,
    delete_and_repeat,
    load_three_times,
    merge_in_several_ways,
    refuse_overlaps,
    ways,
)
from warehouse_rig import WarehouseRig
from warehouse_shop import DELETE, INSERT, ORDERS, UPDATE, Row, changes, first_load, staged_batch

from cdc_database import cdc_database
from change_histories import History, Values
from emulator_process import Emulator
from floodmark.core.errors import ConfigError, TargetLostError, TargetRefusedError
from floodmark.core.naming import versions_name
from floodmark.core.plan import TableCounts, TablePlan, WindowPlan, replay_lane
from floodmark.core.position import Interval
from floodmark.core.schema import COMMITTED_COLUMN, TableName
from floodmark.core.settings import OnFailure, PipelineSettings, Rule, Style, TableSettings
from floodmark.iceberg import history
from floodmark.iceberg.checks import IcebergQuality
from floodmark.iceberg.lake import PUBLISHED, UNPUBLISHED
from floodmark.iceberg.release import LakeQuarantine
from floodmark.iceberg.targets import LakeTargets
from floodmark.iceberg.upkeep import LakeUpkeep
from floodmark.iceberg.warehouse import IcebergWarehouse
from floodmark.postgres.warehouse import history as postgres_history
from floodmark.postgres.warehouse.history import PostgresVersions
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.sync.ports import StagedRows
from lsns import lsn
from order_rig import OrderRig
from schedule_seeds import schedule_seeds
from table_plans import with_settings

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def read_versions(lake: IcebergWarehouse, target: TableName) -> list[dict[str, Any]]:
    """Return all versions as readers without Java see them, in the order of keys and places."""
    targets = [target, versions_name(target)]
    found = lake.catalog.read_locations(targets)
    rows = [
        row
        for each in targets
        for row in StaticTable.from_metadata(found[PUBLISHED, each]).scan().to_arrow().to_pylist()
    ]
    [key] = {"id", "Id"} & rows[0].keys() if rows else {"Id"}
    return sorted(rows, key=lambda row: (row[key], row["__load"], row["__lsn"]))


# --------------------------------------------------------------------------------------------------------------------
# Snapshots of tables without a key.


def test_snapshot_in_a_lake_has_the_rows_of_the_newest_read(lake: LakeRig, emulator: Emulator) -> None:
    zones, target = TableName("dbo", "Zones"), TableName("shop", "zones")
    settings = TableSettings(
        zones, target, style=Style.SNAPSHOT, rules=(Rule("positive", '"Rate" > 0', OnFailure.QUARANTINE),)
    )

    def rows() -> list[tuple[int, int]]:
        location = lake.lake.catalog.read_locations([target])[PUBLISHED, target]
        found = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
        return sorted((row["Code"], row["Rate"]) for row in found)

    with cdc_database(emulator) as source:
        source.run("CREATE TABLE dbo.Zones (Code int, Rate int)", "INSERT dbo.Zones VALUES (1, 10), (2, 20), (2, 20)")
        source.enable("Zones")
        rig = LakeSwitchRig(emulator, source, lake, "zones")
        rig.pipelines = [PipelineSettings("zones", (settings,), source_name="zones")]
        rig.run("zones")
        assert rows() == [(1, 10), (2, 20), (2, 20)]
        before = lake.lake.catalog.read_locations([target])
        source.run("CREATE TABLE dbo.Others (Id int)")
        source.enable("Others")
        rig.change("INSERT INTO dbo.Others VALUES (1)")
        rig.run("zones")
        assert lake.lake.catalog.read_locations([target]) == before

        rig.change("DELETE TOP (1) dbo.Zones WHERE Code = 2", "INSERT dbo.Zones VALUES (3, -1), (4, 40)")
        opened = rig.open("zones")
        assert opened.window_id is not None
        with pytest.MonkeyPatch.context() as patch, pytest.raises(DeathError):
            patch.setattr(lake.ledger.__class__, "record_merge", die)
            rig.finish(opened)
        assert rows() == [(1, 10), (2, 20), (2, 20)]
        rig.finish(opened)
        assert rows() == [(1, 10), (2, 20), (4, 40)]
        quarantine = LakeQuarantine(lake.lake, lambda: None)
        released = quarantine.release("zones", replace(settings, rules=()), "anna")
        assert (released.released, released.inserted_rows) == (1, 1)
        assert rows() == [(1, 10), (2, 20), (3, -1), (4, 40)]

        rig.change("DELETE dbo.Zones")
        rig.run("zones")
        assert rows() == []
        rig.change("INSERT dbo.Zones VALUES (5, 50)")
        rig.run("zones")
        assert rows() == [(5, 50)]
        assert LakeTargets(lake.lake.catalog).check_target(rig.ledger.read_window(opened.window_id).plan.tables[0])
        rig.pipelines = [PipelineSettings("zones", (replace(settings, style=Style.LOG),), source_name="zones")]
        rig.change("INSERT dbo.Zones VALUES (6, 60)")
        with pytest.raises(TargetRefusedError, match="is a snapshot"):
            rig.run("zones")


# --------------------------------------------------------------------------------------------------------------------
# Random histories.


class DeathError(Exception):
    """A merge that ends between its two tables."""


def die(*_: object) -> None:
    raise DeathError


@dataclass
class LakeOrderRig(OrderRig):
    """Windows in any order. Some merges end between the two tables, and begin again in the same attempt."""

    lake: LakeRig = field(kw_only=True)

    def open_warehouse(self) -> IcebergWarehouse:
        return self.lake.lake

    def stage_loaded(self, plan: WindowPlan, batches: Iterator[pa.RecordBatch]) -> None:
        self.warehouse.sink(plan, 0).write(0, batches)

    def merge(self, plan: WindowPlan, staged: StagedRows | None = None) -> Mapping[TableName, TableCounts]:
        if self.rng.random() < 0.3:
            with pytest.MonkeyPatch.context() as patch, suppress(DeathError):
                patch.setattr(history._Versions, "replace_newest", die)
                super().merge(plan, staged)
        return self.ledger.record_merge(plan, super().merge(plan, staged))

    def finish(self, plan: WindowPlan, counts: object) -> None:
        assert counts
        found = IcebergQuality(self.lake.lake, lambda: None).check_window(plan, self.ledger.read_counts(plan.window_id))
        assert found == {}
        before = LakeReader(self.lake).read_all(self)
        self.ledger.mark_checked(plan.window_id)
        self.ledger.advance(plan.window_id, self.lake.lake.publish_window)
        self.warehouse.drop_staging(plan.window_id)
        refuse_overlaps(before)
        refuse_overlaps(LakeReader(self.lake).read_all(self))

    def delete_old_versions(self) -> int:
        assert self.keep_versions is not None
        versions, before = versions_name(self.target), len(LakeReader(self.lake).read_all(self))
        [(_, words)] = LakeUpkeep(self.lake.lake, lambda: None).keep_tables(
            [versions], timedelta(days=9), {versions: self.keep_versions}
        )
        deleted = before - len(LakeReader(self.lake).read_all(self))
        assert (f"; {deleted} old version" in words) == (deleted > 0), words
        return deleted


class LakeReader(HistoryReader):
    """A reader of a lake without Java."""

    def read_all(self, rig: OrderRig) -> list[tuple[Any, ...]]:
        return [tuple(map(row.get, CONTENT.split(", "))) for row in read_versions(self.session.lake, rig.target)]

    def rows_as_of(self, rig: OrderRig, number: int) -> dict[str, Values]:
        at = lsn(number).value
        found = [
            row
            for row in read_versions(self.session.lake, rig.target)
            if row["__lsn"] <= at and (row.get("__next_lsn") is None or row["__next_lsn"] > at) and not row["__deleted"]
        ]
        return by_key([(row["id"], row["a"], row["lob"], row["old"]) for row in found])

    def newest_rows(self, rig: OrderRig) -> dict[str, Values]:
        rows = [row for row in read_versions(self.session.lake, rig.target) if row.get("__next_lsn") is None]
        return by_key([(row["id"], row["a"], row["lob"], row["old"]) for row in rows if not row["__deleted"]])


def two_ways(rng: random.Random) -> Iterator[Windows]:
    """Yield the same changes as one window, and as windows that overlap in any order: each of them takes seconds."""
    first, *_, last = ways(rng)
    yield first
    yield last


@pytest.mark.parametrize("seed", [3 + seed for seed in schedule_seeds(usual=1)])
def test_any_order_of_windows_ends_in_the_rows_of_the_source_at_each_commit(lake: LakeRig, seed: int) -> None:
    merge_in_several_ways(
        lambda commits, rng: LakeOrderRig(lake.ledger, lake.at, Style.HISTORY, commits, rng, lake=lake),
        LakeReader(lake),
        seed,
        two_ways,
    )


# Of its loads the usual run has those of one table, further below: these are thirteen windows and loads of a Spark.
@pytest.mark.parametrize("seed", [3 + seed for seed in schedule_seeds(usual=0)])
def test_loads_leave_the_history_before_them(lake: LakeRig, seed: int) -> None:
    load_three_times(
        lambda commits, rng: LakeOrderRig(lake.ledger, lake.at, Style.HISTORY, commits, rng, lake=lake),
        LakeReader(lake),
        seed,
    )


# The usual run has those of one table, further below.
@pytest.mark.parametrize("seed", [3 + seed for seed in schedule_seeds(usual=0)])
def test_versions_that_were_deleted_for_their_age_stay_away(
    lake: LakeRig, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    def open_rig(commits: History, rng: random.Random) -> LakeOrderRig:
        return LakeOrderRig(lake.ledger, lake.at, Style.HISTORY, commits, rng, lake=lake)

    delete_and_repeat(open_rig, LakeReader(lake), monkeypatch, seed, times=1)


# --------------------------------------------------------------------------------------------------------------------
# Windows of one table.


@pytest.fixture
def rig(lake: LakeRig) -> LakeRig:
    return lake.fresh_lake()


def in_history(table: TablePlan) -> TablePlan:
    return with_settings(table, style=Style.HISTORY)


def batch(*rows: Row) -> pa.RecordBatch:
    times = pa.array([NOON + timedelta(seconds=row.lsn) for row in rows], pa.timestamp("us", tz="UTC"))
    return staged_batch(rows).append_column(COMMITTED_COLUMN, times)


def reload(watermark: int, **changed: Any) -> TablePlan:
    return replace(in_history(first_load(rules=(SMALL,))), is_reload=True, watermark=lsn(watermark), **changed)


SEEN = ("Id", "Amount", "Notes", "__op", "__deleted", "__committed_at", "__kept", "__valid_from", "__valid_to")


def versions_of(rig: WarehouseRig, at: Any) -> list[tuple[Any, ...]]:
    if isinstance(rig, LakeRig):
        return [tuple(map(row.get, (*SEEN, "__lsn", "__next_lsn"))) for row in read_versions(rig.lake, rig.target)]
    columns = ", ".join(f'"{name}"' for name in (*SEEN, "__lsn", "__next_lsn"))
    with psycopg.connect(at.conninfo()) as session:
        view = f'SELECT {columns} FROM shop."{rig.target.name}_history" ORDER BY "Id", __load, __lsn'
        return session.execute(view).fetchall()


def waiting(rig: WarehouseRig) -> list[tuple[Any, ...]]:
    """Return the rows in quarantine, without the load that is in their keys."""
    return [(rule, key[0], key[2], position, outcome, by) for rule, key, position, _, outcome, by in quarantined(rig)]


def test_rows_in_quarantine_wait_and_are_released_as_in_postgresql(rig: LakeRig) -> None:
    both: Sequence[WarehouseRig] = (rig, rig.in_postgres())

    def run(table: TablePlan, to: int, *rows: Row, lane: str = "") -> TableCounts:
        counts = [each.run(table, to, batch(*rows), lane) for each in both]
        assert counts[0] == counts[1]
        compare()
        return counts[0]

    def compare() -> None:
        assert versions_of(both[0], rig.at) == versions_of(both[1], rig.at)
        assert waiting(both[0]) == waiting(both[1])

    rules, load = (SMALL,), "load dbo.Orders"
    run(in_history(first_load(rules=rules)), 10, Row(1, INSERT, 10, 5, notes="n"), Row(2, INSERT, 10, 500, notes="m"))
    kept = (Row(1, UPDATE, 12, 500, notes="x"), Row(1, UPDATE, 14, 7, keep=True), Row(3, INSERT, 15, 3, notes="n"))
    counts = run(in_history(changes(10, 20, rules=rules)), 20, *kept, Row(4, INSERT, 16, 4, notes="o"))
    assert counts == TableCounts(staged_rows=4, inserted_rows=2, updated_rows=1, quarantined_rows=1)
    run(in_history(changes(20, 30, rules=rules)), 30, Row(4, DELETE, 22, 4), Row(4, INSERT, 24, 6, notes="p"))
    settings = TableSettings(ORDERS, rig.target, style=Style.HISTORY)
    released = [
        LakeQuarantine(rig.lake, lambda: None).release(rig.pipeline, settings, "me"),
        PostgresQuarantine(rig.at).release(both[1].pipeline, replace(settings, target=both[1].target), "me"),
    ]
    assert [replace(each, window_id=None) for each in released] == [replace(released[1], window_id=None)] * 2
    assert (released[0].released, released[0].updated_rows) == (2, 1)
    compare()
    # The update that left the text out has that of the change that was released late.
    assert [row[2] for row in versions_of(rig, rig.at) if row[0] == 1] == ["n", "x", "x"]
    # A row that breaks a rule was read, and its key keeps its version; two are not found.
    swept = run(reload(30), 40, Row(1, INSERT, 40, 900, notes="x"), Row(3, INSERT, 40, 3, notes="n"), lane=load)
    assert (swept.swept_rows, swept.quarantined_rows, swept.unchanged_rows) == (2, 1, 1)
    assert run(reload(40, keeps_unread=True), 50, Row(4, INSERT, 50, 4, notes="q"), lane=load).swept_rows == 0
    # A load without a row has no time of a commit: the two have times of their own.
    empty = [each.run(reload(50), 60, batch(), load) for each in both]
    assert empty == [TableCounts(swept_rows=3)] * 2
    assert [row[:5] for row in versions_of(rig, rig.at)] == [row[:5] for row in versions_of(both[1], rig.at)]


def test_versions_are_deleted_for_their_age_and_stay_away_as_in_postgresql(
    rig: LakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    both: Sequence[WarehouseRig] = (rig, rig.in_postgres())
    versions, names = versions_name(rig.target), [each.pipeline for each in both]
    settings = TableSettings(ORDERS, rig.target, style=Style.HISTORY, keep_versions=1)

    def aged(table: TablePlan) -> TablePlan:
        return with_settings(in_history(table), keep_versions=1)

    def run(table: TablePlan, to: int, *rows: Row, lane: str = "") -> TableCounts:
        counts = [each.run(table, to, batch(*rows), lane) for each in both]
        assert counts[0] == counts[1]
        assert versions_of(both[0], rig.at) == versions_of(both[1], rig.at)
        return counts[0]

    run(aged(first_load(rules=(SMALL,))), 10, Row(1, INSERT, 10, 5, notes="n"), Row(2, INSERT, 10, 5, notes="n"))
    rows = (Row(1, UPDATE, 12, 500, notes="x"), Row(1, UPDATE, 14, 7, keep=True), Row(2, UPDATE, 16, 8, notes="o"))
    run(aged(changes(10, 20, rules=(SMALL,))), 20, *rows)
    run(aged(changes(20, 30)), 30, Row(1, UPDATE, 22, 8, notes="m"), Row(2, DELETE, 24, 8))
    assert len(versions_of(rig, rig.at)) == 6
    # Of the first versions, one ended before this moment and one after it.
    monkeypatch.setattr(postgres_history, "_kept_since", lambda _: f"timestamptz '{NOON + timedelta(seconds=15)}'")
    upkeep = LakeUpkeep(rig.lake, lambda: None)
    [(_, words)] = upkeep.keep_tables([versions], timedelta(days=9), {versions: 1})
    assert "; 1 old version deleted (keep_versions); " in words
    assert PostgresVersions(rig.at).delete_old(names[1], replace(settings, target=both[1].target)) == 1
    left = versions_of(rig, rig.at)
    assert [row[:3] for row in left] == [(1, 7, "n"), (1, 8, "m"), (2, 5, "n"), (2, 8, "o"), (2, 8, None)]
    assert versions_of(both[1], rig.at) == left

    # A replay of what was deleted, and of what is left, with a version in the place of the one that was never merged.
    again = (Row(1, UPDATE, 11, 6, notes="l"), rows[1], rows[2])
    lane = replay_lane(Interval(lsn(10), lsn(20)))
    replay = replace(aged(changes(10, 20)), watermark=lsn(30))
    assert run(replay, 20, *again, lane=lane) == TableCounts(staged_rows=3, unchanged_rows=3)
    assert versions_of(rig, rig.at) == left

    released = [
        LakeQuarantine(rig.lake, lambda: None).release(names[0], settings, "me"),
        PostgresQuarantine(rig.at).release(names[1], replace(settings, target=both[1].target), "me"),
    ]
    assert released == [released[1]] * 2
    assert [row[-2:] for row in waiting(rig)] == [("overtaken", "me")]
    assert waiting(rig) == waiting(both[1])
    assert versions_of(rig, rig.at) == left


def test_window_that_is_merged_again_changes_nothing_and_is_not_published_by_halves(
    rig: LakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.run(in_history(first_load()), 10, batch(Row(1, INSERT, 10, 5, notes="n")))
    plan = rig.open(in_history(changes(10, 20)), to=20)
    staged = rig.stage(plan, batch(Row(1, UPDATE, 15, 6, notes="m")))
    with monkeypatch.context() as patch:
        patch.setattr(history._Versions, "replace_newest", die)
        with pytest.raises(DeathError):
            rig.merge(plan, staged.rows)
    plan = rig.prepare(plan.window_id)
    staged = rig.stage(plan, batch(Row(1, UPDATE, 15, 6, notes="m")))
    counts = rig.warehouse.merge_window(plan)
    assert rig.warehouse.merge_window(plan) == counts
    assert [row[1] for row in versions_of(rig, rig.at)] == [5]
    rig.merge(plan, staged.rows)
    # Another program writes to one of the two tables.
    versions = f"{versions_name(rig.target)}"
    rig.lake.session().sql(f"INSERT INTO {UNPUBLISHED}.{versions} SELECT * FROM {UNPUBLISHED}.{versions}")
    found = IcebergQuality(rig.lake, lambda: None).check_window(plan, counts)
    assert "every_version_once" in str(found[ORDERS])
    rig.ledger.drop_merged(plan.window_id)
    rig.run(in_history(changes(10, 20)), 20, batch(Row(1, UPDATE, 15, 6, notes="m")))
    assert [row[1] for row in versions_of(rig, rig.at)] == [5, 6]


def test_history_is_kept_small_and_renamed_with_its_versions(rig: LakeRig) -> None:
    rig.run(in_history(first_load()), 10, batch(Row(1, INSERT, 10, 5, notes="n"), Row(2, INSERT, 10, 5, notes="n")))
    for after in (10, 20):
        rig.run(in_history(changes(after, after + 10)), after + 10, batch(Row(1, UPDATE, after + 5, after, notes="m")))
    before = versions_of(rig, rig.at)
    targets = [rig.target, versions_name(rig.target)]
    upkeep = LakeUpkeep(rig.lake, lambda: None)
    assert [(each.rows, str(each.target)) for each in upkeep.list_tables(targets)] == [
        (2, str(targets[0])),
        (2, str(targets[1])),
    ]
    done = [words for _, words in upkeep.keep_tables(targets, timedelta(0), rewrites=True)]
    assert all(words.startswith("was ") for words in done)
    assert versions_of(rig, rig.at) == before
    to = TableName("sales", rig.target.name)
    rig.ledger.rename_target(rig.pipeline, ORDERS, to, rig.lake.catalog.rename)
    renamed = replace(rig, target=to)
    renamed.run(in_history(changes(30, 40)), 40, batch(Row(1, DELETE, 35, 20)))
    assert [row[:2] for row in versions_of(renamed, rig.at)] == [(1, 5), (1, 10), (1, 20), (1, 20), (2, 5)]
    living = LakeTargets(rig.lake.catalog).check_target(with_settings(in_history(changes(40, 50)), target=to))
    assert {"__valid_from", "__kept", "Amount"} <= living
    rows = rig.lake.read_rows(with_settings(in_history(changes(40, 50)), target=to))
    assert rows is not None
    assert [row["Id"] for part in rows for row in part.to_pylist()] == [2]


def test_table_that_is_not_the_one_that_was_loaded_is_refused(rig: LakeRig) -> None:
    rig.run(in_history(first_load()), 10, batch(Row(1, INSERT, 10, 5, notes="n")))
    plan = rig.open(in_history(changes(10, 20)), to=20)
    versions = versions_name(rig.target)
    for catalog in (PUBLISHED, UNPUBLISHED):
        rig.lake.session().sql(f"DROP TABLE {catalog}.{versions}")
    with pytest.raises(TargetLostError, match=f"{versions} of the lake does not exist, and was loaded before"):
        rig.warehouse.prepare_window(plan)
    rig.ledger.leave_out(plan.window_id, [ORDERS])
    rig.run(reload(10), 30, batch(Row(1, INSERT, 30, 6, notes="n")), lane="load dbo.Orders")
    assert [row[1] for row in versions_of(rig, rig.at)] == [5, 6]
    for style, what in ((Style.CURRENT, "a history"), (Style.LOG, "a history")):
        other = with_settings(changes(30, 40), style=style, target=rig.target)
        with pytest.raises(ConfigError, match=f"of the lake is {what}"):
            LakeTargets(rig.lake.catalog).check_target(other)
    taken = rig.lake.catalog
    rig.lake.session().sql(f"CREATE TABLE {UNPUBLISHED}.shop.taken_versions (id int) USING iceberg")
    rig.lake.session().sql(f"CREATE TABLE {PUBLISHED}.shop.taken_versions (id int) USING iceberg")
    with pytest.raises(TargetRefusedError, match=r"shop\.taken_versions of the lake is not the ended versions"):
        replace(rig, target=TableName("shop", "taken"), pipeline=f"{rig.pipeline}_taken").open(
            in_history(first_load()), to=40
        )
    assert taken.exists()


def test_columns_come_go_and_grow_with_the_source(lake: LakeRig, emulator: Emulator) -> None:
    """From change table to versions: a column that is added, one that is gone, and a delete without its values."""
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, [it's \\ {x}] int NOT NULL, Note ntext)",
            "INSERT INTO dbo.Orders VALUES (1, 10, N'a')",
        )
        source.enable("Orders")
        name, target = "columns", TableName("shop", "orders_of_history")
        rig = LakeSwitchRig(emulator, source, lake, name)
        rig.pipelines = [PipelineSettings(name, (TableSettings(ORDERS, target, style=Style.HISTORY),))]
        rig.run(name)
        session = lake.lake.session()
        for table in (target, versions_name(target)):
            session.sql(f"ALTER TABLE {PUBLISHED}.{table} ADD COLUMN Old int")
        session.sql(f"UPDATE {PUBLISHED}.{target} SET Old = 5")
        rig.change(
            "UPDATE dbo.Orders SET [it's \\ {x}] = 11",
            "EXEC emulator.null_in_deletes N'dbo.Orders', N'it''s \\ {x}'",
            "ALTER TABLE dbo.Orders ADD Place nvarchar(9)",
            "DELETE dbo.Orders",
        )
        rig.run(name)
        rows = read_versions(lake.lake, target)
        seen = [(row["it's \\ {x}"], row["Note"], row["Old"], row["__kept"], row["__op"]) for row in rows]
        assert seen == [
            (10, "a", 5, [], 2),
            (11, "a", None, [], 4),
            (11, "a", None, ["Note", "it's \\ {x}"], 1),
        ]
        rig.approve()
        rig.switches.take()
        rig.change("INSERT INTO dbo.Orders VALUES (1, 12, N'b', N'x')")
        rig.run(name)
        assert rig.switches.take()[-1].endswith("done; dbo_Orders was dropped.")
        rig.change("UPDATE dbo.Orders SET Place = N'y'")
        rig.run(name)
        assert [row.get("Place") for row in read_versions(lake.lake, target)] == [None, None, None, None, "y"]
