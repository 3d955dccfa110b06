"""``WarehouseContract``: what every ``sync.ports.Warehouse`` does, whatever it is made of."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from warehouse_rig import WarehouseRig
from warehouse_shop import DELETE, INSERT, ORDERS, UPDATE, Row, changes, first_load, instance
from window_histories import FIRST_POSITION, History, covering_windows, net_rows, states_at, without_lobs

from cdc_database import wait_until
from floodmark.core.errors import (
    DuplicateKeyError,
    FloodmarkError,
    WarehouseUnavailableError,
    WatermarkConflictError,
)
from floodmark.core.naming import map_columns
from floodmark.core.plan import LoadKind, TableCounts, TablePlan, WindowPlan, WindowState, replay_lane
from floodmark.core.position import Interval
from floodmark.core.schema import MAX_LENGTH, SourceColumn, TableName, keep_column
from floodmark.core.settings import Deletes, Naming
from floodmark.sync.ports import StagedNow
from lsns import lsn
from table_plans import with_settings

ONE = {1: (Decimal("5.00"), None, "n")}
END = 100
"""Where the watermark is while windows are replayed."""
both_deletes = pytest.mark.parametrize("deletes", Deletes)
both_kinds = pytest.mark.parametrize("kind", LoadKind)
few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def one(key: int = 1) -> list[Row]:
    """Return an inserted row; that of key 1 is ``ONE``."""
    return [Row(key, INSERT, 10, 5, notes="n")]


def other_table() -> TablePlan:
    return with_settings(first_load(), source=TableName("dbo", "Items"), target=TableName("shop", "items"))


def planned(rig: WarehouseRig, kind: LoadKind) -> TablePlan:
    """Return a table of a window up to 10, of either kind."""
    if kind is LoadKind.FIRST_LOAD:
        return first_load()
    rig.run(first_load(), 5, [])
    return changes(5, 10)


class WarehouseContract:
    """A test class of an adapter derives from it, with a fixture ``rig``."""

    @both_deletes
    def test_rows_are_counted_by_what_became_of_them(self, rig: WarehouseRig, deletes: Deletes) -> None:
        first = rig.run(first_load(deletes), 10, [Row(key, INSERT, 10, key * 10, notes=f"n{key}") for key in (1, 2, 3)])
        assert first == TableCounts(staged_rows=3, inserted_rows=3)
        rows = [Row(1, UPDATE, 11, 11, notes="m"), Row(2, DELETE, 12), Row(4, INSERT, 13, 40, 5), Row(9, DELETE, 14)]
        counts = rig.run(changes(10, 20, deletes), 20, rows)
        assert counts == TableCounts(staged_rows=4, inserted_rows=1, updated_rows=1, deleted_rows=1, unchanged_rows=1)
        assert rig.visible() == {
            1: (Decimal("11.00"), None, "m"),
            3: (Decimal("30.00"), None, "n3"),
            4: (Decimal("40.00"), 5, None),
        }
        assert rig.run(changes(20, 30, deletes), 30, [Row(2, INSERT, 21, 2)]).inserted_rows == 1
        assert rig.visible()[2] == (Decimal("2.00"), None, None)

    @both_deletes
    def test_any_order_or_repetition_of_windows_ends_in_the_same_rows(
        self, rig: WarehouseRig, deletes: Deletes
    ) -> None:
        @few
        @given(covering_windows())
        def in_any_order(case: tuple[History, list[tuple[int, int]]]) -> None:
            history, windows = case
            target = replayed(rig, deletes)
            for after, to in windows:
                replay(target, after, to, deletes, without_lobs(net_rows(history, after, to)))
            end = states_at(history, FIRST_POSITION + len(history))
            assert {key: row[0] for key, row in target.visible().items()} == {
                key: Decimal(state.amount) for key, state in end.items()
            }

        in_any_order()

    @both_deletes
    def test_deleted_row_does_not_come_back_with_an_older_change(self, rig: WarehouseRig, deletes: Deletes) -> None:
        target = replayed(rig, deletes)
        replay(target, 20, 30, deletes, [Row(1, DELETE, 25), Row(2, DELETE, 26)])
        counts = replay(target, 10, 20, deletes, [Row(1, INSERT, 12, 12), Row(2, UPDATE, 13, 13)])
        assert counts == TableCounts(staged_rows=2, unchanged_rows=2)
        assert target.visible() == {}
        replay(target, 30, 40, deletes, [Row(1, INSERT, 35, 5, notes="n")])
        assert target.visible() == ONE

    @both_deletes
    def test_keys_that_differ_in_their_sign_alone_are_deleted_one_by_one(
        self, rig: WarehouseRig, deletes: Deletes
    ) -> None:
        target = replayed(rig, deletes)
        replay(target, 10, 20, deletes, [Row(key, INSERT, 15, key) for key in (-1, 1, 2)])
        together = [Row(-1, DELETE, 25), Row(1, DELETE, 25)]
        assert replay(target, 20, 30, deletes, together).deleted_rows == 2
        replay(target, 30, 40, deletes, [Row(key, INSERT, 35, key) for key in (-1, 1)])
        for key, position in ((-1, 45), (1, 55)):
            replay(target, position - 5, position + 5, deletes, [Row(key, DELETE, position)])
        older = replay(target, 30, 40, deletes, [Row(key, INSERT, 35, key) for key in (-1, 1)])
        assert older == TableCounts(staged_rows=2, unchanged_rows=2)
        assert list(target.visible()) == [2]

    def test_tombstones_hold_after_a_change_to_soft_deletes(self, rig: WarehouseRig) -> None:
        target = replayed(rig, Deletes.HARD)
        replay(target, 20, 30, Deletes.HARD, [Row(1, DELETE, 25)])
        replay(target, 10, 20, Deletes.SOFT, [Row(1, INSERT, 12, 12)])
        assert target.visible() == {}

    def test_left_out_lob_keeps_its_value(self, rig: WarehouseRig) -> None:
        rig.run(first_load(), 10, one())
        rig.run(changes(10, 20), 20, [Row(1, UPDATE, 15, 7, keep=True)])
        assert rig.visible() == {1: (Decimal("7.00"), None, "n")}

    @both_deletes
    def test_columns_have_the_names_of_the_plan(self, rig: WarehouseRig, deletes: Deletes) -> None:
        """A source to which case counts has three of them, and one has a value that changes may leave out."""
        columns = (
            SourceColumn("ID", "int", 1, nullable=False),
            SourceColumn("Id", "int", 2),
            SourceColumn("id", "int", 3),
            SourceColumn("Order Note", "nvarchar", 4, MAX_LENGTH),
        )
        names = map_columns(Naming.SNAKE_CASE, [column.name for column in columns])
        key, second, third, note = (column.target for column in names)
        assert (key, note) == ("id", "order_note")

        def planned(table: TablePlan) -> TablePlan:
            named = replace(table, feed=instance(columns, ("ID",)), columns=names)
            return with_settings(named, naming=Naming.SNAKE_CASE)

        def staged(at: int, *rows: tuple[int, int, int, str | None, int, bool]) -> pa.RecordBatch:
            keys, seconds, thirds, notes, operations, kept = zip(*rows, strict=True)
            return pa.record_batch(
                {
                    **{
                        name: pa.array(values, pa.int32())
                        for name, values in zip((key, second, third), (keys, seconds, thirds), strict=True)
                    },
                    note: pa.array(notes, pa.string()),
                    "__lsn": pa.array([lsn(at).value] * len(rows), pa.binary()),
                    "__op": pa.array(operations, pa.int16()),
                    keep_column(note): pa.array(kept, pa.bool_()),
                }
            )

        loaded = staged(10, (1, 2, 3, "a", INSERT, False), (4, 5, 6, "b", INSERT, False))
        rig.run(planned(first_load(deletes)), 10, loaded)
        rows = ((1, 20, 30, None, UPDATE, True), (4, 5, 6, None, DELETE, False), (7, 8, 9, "c", INSERT, False))
        changed = staged(15, *rows)
        counts = rig.run(planned(changes(10, 20, deletes)), 20, changed)
        assert (counts.updated_rows, counts.deleted_rows, counts.inserted_rows) == (1, 1, 1)
        found = {tuple(row[name] for name in (key, second, third, note)) for row in rig.read(rig.target)}
        assert found == {(1, 20, 30, "a"), (7, 8, 9, "c")}

    @both_kinds
    def test_rows_in_staging_are_counted_while_the_window_is_loaded(self, rig: WarehouseRig, kind: LoadKind) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        rig.stage(plan, [Row(key, INSERT, 8, 1) for key in (1, 2)])
        rig.stage(plan, [Row(3, INSERT, 8, 1)], part=1)
        # A counter of the warehouse may be a little behind.
        wait_until(lambda: rig.warehouse.count_staged(plan)[ORDERS] == StagedNow(3, 0))

    def test_rows_are_visible_when_the_traits_say_so(self, rig: WarehouseRig) -> None:
        plan = rig.open(first_load(), to=10)
        rig.stage(plan, one())
        assert rig.visible() == {}
        rig.merge(plan)
        assert rig.visible() == (ONE if rig.warehouse.traits.publishes == "at_merge" else {})
        rig.finish(plan)
        assert rig.visible() == ONE

    def test_check_reads_the_merged_rows_before_they_are_published(self, rig: WarehouseRig) -> None:
        rig.run(first_load(), 10, one())
        plan = rig.open(changes(10, 20), to=20)
        rig.stage(plan, [Row(2, INSERT, 15, 5, notes="n")])
        [checked] = rig.warehouse.open_rows(plan, rig.merge(plan))
        assert sorted(rig.rows(checked.target)) == [1, 2]
        assert checked.staged is not None
        assert list(rig.rows(checked.staged)) == [2]

    def test_check_reads_the_target_alone_when_another_run_has_finished_the_window(self, rig: WarehouseRig) -> None:
        plan = rig.open(first_load(), to=10)
        rig.stage(plan, one())
        counts = rig.merge(plan)
        rig.finish(plan)
        [checked] = rig.warehouse.open_rows(plan, counts)
        assert (rig.rows(checked.target), checked.staged) == (ONE, None)

    def test_publication_may_be_repeated_at_any_time(self, rig: WarehouseRig) -> None:
        plan = rig.open(first_load(), to=10)
        rig.stage(plan, one())
        rig.merge(plan)
        rig.check(plan)
        for _ in range(2):
            rig.publish(plan)
            assert rig.visible() == ONE
        rig.ledger.advance(plan.window_id)
        rig.warehouse.drop_staging(plan.window_id)
        rig.run(changes(10, 20), 20, [Row(1, DELETE, 15)])
        rig.publish(plan)
        assert rig.visible() == {}

    def test_window_in_the_ledger_is_published_with_its_watermarks_or_not_at_all(self, rig: WarehouseRig) -> None:
        if not rig.warehouse.traits.publishes_in_ledger:
            return  # The tests of the other kinds are those of ``publish_window`` alone.
        plan = rig.open(first_load(), to=10)
        rig.stage(plan, one())
        rig.merge(plan)
        rig.check(plan)

        def publish_and_end(published: WindowPlan, transaction: Any) -> None:
            rig.warehouse.publish_window(published, transaction)
            raise InterruptedError

        with pytest.raises(InterruptedError):
            rig.ledger.advance(plan.window_id, publish_and_end)
        assert (rig.visible(), rig.ledger.read_window(plan.window_id).state) == ({}, WindowState.CHECKED)
        rig.publish(plan)
        assert (rig.visible(), rig.ledger.read_window(plan.window_id).state) == (ONE, WindowState.ADVANCED)

    def test_merge_that_is_repeated_at_once_changes_nothing(self, rig: WarehouseRig) -> None:
        plan = rig.open(first_load(), to=10)
        rig.stage(plan, one())
        counts = rig.warehouse.merge_window(plan)
        if rig.warehouse.traits.shares_ledger:
            with pytest.raises(WatermarkConflictError):
                rig.warehouse.merge_window(plan)
        else:
            assert rig.warehouse.merge_window(plan) == counts
            rig.ledger.record_merge(plan, counts)
        rig.finish(plan)
        assert rig.visible() == ONE

    @both_kinds
    def test_load_that_was_killed_after_its_merge_is_repeated_and_changes_nothing(
        self, rig: WarehouseRig, kind: LoadKind
    ) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        rig.stage(plan, one())
        counts = rig.warehouse.merge_window(plan)
        opened = rig.ledger.begin_load(plan.window_id)
        assert (opened.state is WindowState.MERGED) == rig.warehouse.traits.shares_ledger
        if opened.state is WindowState.PLANNED:
            rig.warehouse.prepare_window(opened.plan)
            rig.stage(opened.plan, one())
            assert rig.merge(opened.plan, 1) == counts
        assert rig.ledger.read_counts(plan.window_id) == counts
        rig.finish(opened.plan)
        assert rig.visible() == ONE

    @both_kinds
    def test_rows_of_an_overtaken_attempt_never_count(self, rig: WarehouseRig, kind: LoadKind) -> None:
        overtaken = rig.open(planned(rig, kind), to=10)
        rig.stage(overtaken, one(3))
        later = rig.ledger.begin_load(overtaken.window_id).plan
        with suppress(WatermarkConflictError):  # a warehouse that shares no ledger does not know yet
            rig.stage(overtaken, one(2))
        rig.warehouse.prepare_window(later)
        with pytest.raises(WatermarkConflictError):
            rig.warehouse.merge_window(overtaken)
        if kind is LoadKind.FIRST_LOAD:
            rig.warehouse.clear_parts(later, 0, [0])
            rig.ledger.reset_chunks(later, ORDERS, [0])
        staged = rig.stage(later, one())
        rig.merge(later, staged.rows)
        rig.finish(later)
        assert rig.visible() == ONE

    def test_merge_of_an_overtaken_attempt_is_not_published(self, rig: WarehouseRig) -> None:
        overtaken = rig.open(first_load(), to=10)
        rig.stage(overtaken, one())
        later = rig.prepare(overtaken.window_id)
        with pytest.raises(WatermarkConflictError):
            rig.merge(overtaken)
        assert rig.ledger.read_window(later.window_id).state is WindowState.PLANNED
        assert rig.visible() == {}

    def test_staging_that_lost_rows_is_not_merged(self, rig: WarehouseRig) -> None:
        plan = rig.open(first_load(), to=10)
        rig.stage(plan, one())
        with pytest.raises(WarehouseUnavailableError, match="2 rows were staged, but 1 are in staging now"):
            rig.merge(plan, 2)
        assert rig.ledger.read_window(plan.window_id).state is WindowState.PLANNED
        assert rig.visible() == {}

    @both_kinds
    def test_key_that_is_in_staging_twice_is_refused(self, rig: WarehouseRig, kind: LoadKind) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        rig.stage(plan, one(), part=0)
        rig.stage(plan, one(), part=1)
        with pytest.raises(DuplicateKeyError) as refused:
            rig.merge(plan, 2)
        assert refused.value.subject == str(ORDERS)
        assert rig.visible() == {}

    def test_duplicates_of_a_first_load_are_dropped_but_for_one(self, rig: WarehouseRig) -> None:
        plan = rig.open(first_load(), to=10)
        rig.stage(plan, [*one(), *one(2)], part=0)
        rig.stage(plan, [*one(), *one(3)], part=1)
        assert rig.warehouse.drop_duplicates(plan, 0) == 1
        assert rig.warehouse.drop_duplicates(plan, 0) == 0
        assert rig.merge(plan, 3)[ORDERS] == TableCounts(staged_rows=3, inserted_rows=3)

    def test_tables_of_a_window_are_merged_all_or_none(self, rig: WarehouseRig) -> None:
        other = other_table()
        plan = rig.open(first_load(), other, to=10)
        rig.stage(plan, one(), index=0)
        rig.stage(plan, [*one(), *one()], index=1)
        with pytest.raises(DuplicateKeyError, match=str(other.source)):
            rig.merge(plan, 1, 2)
        assert rig.visible() == {}
        rig.warehouse.drop_duplicates(plan, 1)
        rig.merge(plan, 1, 1)
        if rig.warehouse.traits.publishes == "at_advance":
            assert (rig.visible(), rig.rows(other.target)) == ({}, {})
        rig.finish(plan)
        assert (rig.visible(), rig.rows(other.target)) == (ONE, ONE)

    def test_parts_of_a_first_load_outlast_attempts_and_those_of_changes_do_not(self, rig: WarehouseRig) -> None:
        for kind, kept in ((LoadKind.FIRST_LOAD, {0: 1}), (LoadKind.CHANGES, {})):
            plan = rig.open(first_load() if kind is LoadKind.FIRST_LOAD else changes(10, 20), to=10 if kept else 20)
            rig.stage(plan, one())
            assert rig.warehouse.count_parts(rig.prepare(plan.window_id), 0) == kept
            last = rig.prepare(plan.window_id)
            rig.merge(last)
            rig.finish(last)
        assert rig.visible() == ONE

    def test_parts_are_counted_and_cleared_by_number(self, rig: WarehouseRig) -> None:
        plan = rig.open(first_load(), to=10)
        for part, keys in enumerate(([1, 2], [3], [])):
            rig.stage(plan, [row for key in keys for row in one(key)], part)
        assert rig.warehouse.count_parts(plan, 0) == {0: 2, 1: 1}
        for _ in range(2):
            rig.warehouse.clear_parts(plan, 0, [0, 2])
            assert rig.warehouse.count_parts(plan, 0) == {1: 1}
        rig.merge(plan, 1)
        rig.finish(plan)
        assert list(rig.visible()) == [3]

    def test_parts_are_cleared_where_another_run_has_dropped_the_staging(self, rig: WarehouseRig) -> None:
        plan = rig.open(first_load(), to=10)
        rig.stage(plan, one())
        rig.warehouse.drop_staging(plan.window_id)
        rig.warehouse.clear_parts(plan, 0, [0])
        assert rig.visible() == {}

    def test_staging_of_a_window_that_is_given_up_is_dropped_again_and_again(self, rig: WarehouseRig) -> None:
        plan, second = rig.open(first_load(), to=10), rig.fresh()
        rig.stage(plan, one())
        other = second.open(with_settings(first_load(), source=ORDERS), to=10)
        second.stage(other, one())
        for _ in range(2):
            rig.warehouse.drop_staging(plan.window_id)
        with pytest.raises(FloodmarkError):
            rig.warehouse.merge_window(plan)
        assert rig.visible() == {}
        second.merge(other, 1)
        second.finish(other)
        assert second.visible() == ONE


def replayed(rig: WarehouseRig, deletes: Deletes) -> WarehouseRig:
    """Return a target whose watermark is at ``END``, so that windows below it may come in any order, as replays."""
    target = rig.fresh()
    target.run(first_load(deletes), FIRST_POSITION - 1, [])
    target.ledger.advance_quiet(target.pipeline, lsn(END), {ORDERS: lsn(FIRST_POSITION - 1)})
    return target


def replay(target: WarehouseRig, after: int, to: int, deletes: Deletes, rows: list[Row]) -> TableCounts:
    """Run a window again, or late."""
    table = replace(changes(after, to, deletes), watermark=lsn(END))
    return target.run(table, to, rows, replay_lane(Interval(lsn(after), lsn(to))))
