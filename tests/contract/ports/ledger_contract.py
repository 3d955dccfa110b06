"""``LedgerContract``: what every ``postgres.ledger.ledger.PostgresLedger`` does, in a warehouse of its own or not."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from warehouse_shop import ORDERS, PIPELINE, changes, first_load, instance

from floodmark.core.errors import OperatorError, WatermarkConflictError, WindowBusyError
from floodmark.core.plan import (
    LoadProgress,
    StoredChunk,
    TableCounts,
    TablePlan,
    WindowPlan,
    WindowState,
    load_lane,
    plan_chunks,
)
from floodmark.core.position import Interval
from floodmark.core.schema import TableName
from floodmark.core.settings import OnFailure, Rule
from floodmark.core.snapshot import LogEntry, Validity, Verdict
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.sync.ports import StagedPart
from floodmark.sync.records import OpenedWindow
from lsns import lsn
from table_plans import with_settings

COUNTS = {ORDERS: TableCounts(staged_rows=3, inserted_rows=2, updated_rows=1)}
BOUNDS = [(2,), (4,)]


def begin(ledger: PostgresLedger, table: TablePlan, to: int, lane: str = "") -> WindowPlan:
    """Open a window, and begin its first attempt."""
    return ledger.begin_load(ledger.open_window(PIPELINE, lsn(to), [table], lane=lane).window_id).plan


def merged(ledger: PostgresLedger, table: TablePlan, to: int) -> WindowPlan:
    """Bring a window to MERGED."""
    plan = begin(ledger, table, to)
    ledger.record_merge(plan, COUNTS)
    return plan


def finished(ledger: PostgresLedger, table: TablePlan, to: int) -> WindowPlan:
    """Run a whole window."""
    plan = merged(ledger, table, to)
    ledger.mark_checked(plan.window_id)
    ledger.advance(plan.window_id)
    return plan


def watermark(ledger: PostgresLedger) -> object:
    return ledger.read_tables(PIPELINE)[ORDERS].watermark


class LedgerContract:
    """A test class of an adapter derives from it, with a fixture ``any_ledger``, whose tables are made."""

    def test_schema_is_made_by_many_at_once(self, any_ledger: PostgresLedger) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: any_ledger.ensure_schema(), range(4)))
        assert any_ledger.read_tables(PIPELINE) == {}

    def test_plan_is_read_as_it_was_written(self, any_ledger: PostgresLedger) -> None:
        rules = (Rule("r", "Amount > 0", OnFailure.STOP),)
        plan = any_ledger.open_window(PIPELINE, lsn(10), [first_load(rules=rules)])
        assert any_ledger.unfinished_window(PIPELINE) == any_ledger.read_window(plan.window_id)
        assert any_ledger.read_window(plan.window_id).plan == plan
        assert [opened.plan for opened in any_ledger.list_unfinished(PIPELINE)] == [plan]
        assert any_ledger.unfinished_window("other") is None

    def test_pipeline_has_one_unfinished_window_on_a_lane(self, any_ledger: PostgresLedger) -> None:
        any_ledger.open_window(PIPELINE, lsn(10), [first_load()])
        with pytest.raises(WatermarkConflictError):
            any_ledger.open_window(PIPELINE, lsn(11), [first_load()])

    def test_table_of_another_lane_is_busy(self, any_ledger: PostgresLedger) -> None:
        finished(any_ledger, first_load(), 10)
        begin(any_ledger, replace(first_load(), watermark=lsn(10)), 20, load_lane(ORDERS))
        with pytest.raises(WindowBusyError):
            any_ledger.open_window(PIPELINE, lsn(20), [changes(10, 20)])
        with pytest.raises(WindowBusyError):
            any_ledger.advance_quiet(PIPELINE, lsn(20), {ORDERS: lsn(10)})

    def test_each_load_of_a_planned_window_is_a_new_attempt(self, any_ledger: PostgresLedger) -> None:
        first = begin(any_ledger, first_load(), 10)
        second = any_ledger.begin_load(first.window_id)
        assert (first.attempt, second.plan.attempt, second.state) == (1, 2, WindowState.PLANNED)
        any_ledger.record_merge(second.plan, COUNTS)
        again = any_ledger.begin_load(first.window_id)
        assert (again.plan.attempt, again.state) == (2, WindowState.MERGED)

    def test_overtaken_attempt_writes_nothing(self, any_ledger: PostgresLedger) -> None:
        overtaken = begin(any_ledger, first_load(), 10)
        any_ledger.store_chunks(overtaken, ORDERS, plan_chunks(BOUNDS))
        later = any_ledger.begin_load(overtaken.window_id).plan
        any_ledger.record_staged(later, ORDERS, [StagedPart(0, 7)])
        for write in (
            lambda: any_ledger.record_reads(overtaken, {ORDERS: 99}),
            lambda: any_ledger.record_merge(overtaken, COUNTS),
            lambda: any_ledger.store_chunks(overtaken, ORDERS, plan_chunks([])),
            lambda: any_ledger.record_staged(overtaken, ORDERS, [StagedPart(1, 7)]),
            lambda: any_ledger.reset_chunks(overtaken, ORDERS, [0]),
        ):
            with pytest.raises(WatermarkConflictError):
                write()
        assert any_ledger.read_window(later.window_id).state is WindowState.PLANNED
        assert staged(any_ledger, later) == [7, None, None]
        any_ledger.record_merge(later, COUNTS)
        assert any_ledger.read_counts(later.window_id)[ORDERS].read_rows == 0

    def test_load_at_work_keeps_others_out_until_it_ends(self, any_ledger: PostgresLedger) -> None:
        plan = begin(any_ledger, first_load(), 10)
        with any_ledger.hold_load(plan.window_id), pytest.raises(WindowBusyError), any_ledger.hold_load(plan.window_id):
            pytest.fail("two loads at once")
        with any_ledger.hold_load(plan.window_id):
            pass

    def test_merge_is_recorded_once_with_what_was_read(self, any_ledger: PostgresLedger) -> None:
        plan = begin(any_ledger, first_load(), 10)
        any_ledger.record_reads(plan, {ORDERS: 5})
        known: Mapping[TableName, TableCounts] = any_ledger.record_merge(plan, COUNTS)
        assert known == {ORDERS: replace(COUNTS[ORDERS], read_rows=5)}
        assert any_ledger.read_counts(plan.window_id) == known
        assert any_ledger.read_window(plan.window_id).state is WindowState.MERGED
        with pytest.raises(WatermarkConflictError):
            any_ledger.record_merge(plan, {ORDERS: TableCounts()})
        assert any_ledger.read_counts(plan.window_id) == known

    def test_chunks_are_kept_as_they_were_planned_first(self, any_ledger: PostgresLedger) -> None:
        plan = begin(any_ledger, first_load(), 10)
        assert any_ledger.list_chunks(plan.window_id, ORDERS) == []
        planned = [StoredChunk(chunk) for chunk in plan_chunks(BOUNDS)]
        later = any_ledger.begin_load(plan.window_id).plan
        assert list(any_ledger.store_chunks(later, ORDERS, plan_chunks(BOUNDS))) == planned
        assert list(any_ledger.store_chunks(later, ORDERS, plan_chunks([(9,)]))) == planned
        assert list(any_ledger.list_chunks(plan.window_id, ORDERS)) == planned

    def test_staged_chunks_outlast_attempts_until_they_are_reset(self, any_ledger: PostgresLedger) -> None:
        plan = begin(any_ledger, first_load(), 10)
        any_ledger.store_chunks(plan, ORDERS, plan_chunks(BOUNDS))
        any_ledger.record_staged(plan, ORDERS, [StagedPart(0, 2), StagedPart(2, 0)])
        any_ledger.record_staged(plan, ORDERS, [StagedPart(0, 3)])
        later = any_ledger.begin_load(plan.window_id).plan
        assert staged(any_ledger, later) == [3, None, 0]
        assert any_ledger.read_load_progress(plan.window_id) == {ORDERS: LoadProgress(3, 2, 3)}
        any_ledger.reset_chunks(later, ORDERS, [0])
        assert staged(any_ledger, later) == [None, None, 0]

    def test_window_goes_from_planned_over_merged_and_checked_to_advanced(self, any_ledger: PostgresLedger) -> None:
        plan = begin(any_ledger, first_load(), 10)
        with pytest.raises(OperatorError):
            any_ledger.mark_checked(plan.window_id)
        with pytest.raises(OperatorError):
            any_ledger.advance(plan.window_id)
        any_ledger.record_merge(plan, COUNTS)
        with pytest.raises(OperatorError):
            any_ledger.advance(plan.window_id)
        assert watermark(any_ledger) is None
        any_ledger.mark_checked(plan.window_id)
        assert any_ledger.advance(plan.window_id) == COUNTS
        assert any_ledger.read_window(plan.window_id).state is WindowState.ADVANCED
        state = any_ledger.read_tables(PIPELINE)[ORDERS]
        assert (state.watermark, state.identity) == (lsn(10), instance().identity)
        assert any_ledger.unfinished_window(PIPELINE) is None

    def test_advance_may_be_repeated_by_many_at_once(self, any_ledger: PostgresLedger) -> None:
        plan = merged(any_ledger, first_load(), 10)
        any_ledger.mark_checked(plan.window_id)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: any_ledger.advance(plan.window_id), range(4))) == [COUNTS] * 4
        assert watermark(any_ledger) == lsn(10)

    def test_watermark_moves_by_compare_and_set(self, any_ledger: PostgresLedger) -> None:
        finished(any_ledger, first_load(), 10)
        any_ledger.advance_quiet(PIPELINE, lsn(20), {ORDERS: lsn(10)})
        with pytest.raises(WatermarkConflictError):
            any_ledger.advance_quiet(PIPELINE, lsn(30), {ORDERS: lsn(10)})
        with pytest.raises(WatermarkConflictError):
            any_ledger.open_window(PIPELINE, lsn(30), [changes(10, 30)])
        finished(any_ledger, changes(20, 30), 30)
        assert watermark(any_ledger) == lsn(30)

    def test_window_ends_where_its_load_has_read_to(self, any_ledger: PostgresLedger) -> None:
        finished(any_ledger, first_load(), 10)
        plan = begin(any_ledger, changes(10, 20), 20)
        extended = any_ledger.extend_window(plan, LogEntry(lsn(25), None))
        assert extended.to == lsn(25)
        assert [table.interval for table in extended.tables] == [Interval(lsn(10), lsn(25))]
        again = any_ledger.begin_load(plan.window_id).plan
        assert (again.to, again.attempt) == (lsn(25), plan.attempt + 1)
        with pytest.raises(WatermarkConflictError):
            any_ledger.extend_window(extended, LogEntry(lsn(30), None))
        with pytest.raises(ValueError, match="cannot end at"):
            any_ledger.extend_window(again, LogEntry(lsn(24), None))
        any_ledger.record_merge(again, COUNTS)
        any_ledger.mark_checked(plan.window_id)
        for _ in range(2):
            any_ledger.advance(plan.window_id)
            assert watermark(any_ledger) == lsn(25)

    def test_window_with_a_first_load_keeps_its_end(self, any_ledger: PostgresLedger) -> None:
        plan = begin(any_ledger, first_load(), 10)
        with pytest.raises(ValueError, match="cannot end at"):
            any_ledger.extend_window(plan, LogEntry(lsn(11), None))

    def test_quiet_stretch_waits_for_an_unfinished_window(self, any_ledger: PostgresLedger) -> None:
        finished(any_ledger, first_load(), 10)
        begin(any_ledger, changes(10, 20), 20)
        with pytest.raises(WatermarkConflictError):
            any_ledger.advance_quiet(PIPELINE, lsn(20), {ORDERS: lsn(10)})
        assert watermark(any_ledger) == lsn(10)

    def test_table_that_is_left_out_can_no_longer_be_merged(self, any_ledger: PostgresLedger) -> None:
        other = with_settings(first_load(), source=TableName("dbo", "Items"), target=TableName("shop", "items"))
        opened = any_ledger.open_window(PIPELINE, lsn(10), [first_load(), other])
        plan = any_ledger.begin_load(opened.window_id).plan
        left = any_ledger.leave_out(plan.window_id, [ORDERS])
        assert left is not None
        assert [table.source for table in left.tables] == [other.source]
        with pytest.raises(WatermarkConflictError):
            any_ledger.record_merge(plan, COUNTS)
        assert any_ledger.leave_out(plan.window_id, [other.source]) is None
        assert any_ledger.unfinished_window(PIPELINE) is None

    def test_table_that_a_check_refuses_leaves_the_merged_window(self, any_ledger: PostgresLedger) -> None:
        other = with_settings(first_load(), source=TableName("dbo", "Items"), target=TableName("shop", "items"))
        opened = any_ledger.open_window(PIPELINE, lsn(10), [first_load(), other])
        plan = any_ledger.begin_load(opened.window_id).plan
        verdicts = {name: Validity(name, Verdict.REFUSED, "a check failed.") for name in (ORDERS, other.source)}
        assert any_ledger.refuse_merged(plan.window_id, [verdicts[ORDERS]]) == replace(plan, attempt=1)
        any_ledger.record_merge(plan, COUNTS | {other.source: TableCounts()})
        left = any_ledger.refuse_merged(plan.window_id, [verdicts[other.source]])
        assert left is not None
        assert [table.source for table in left.tables] == [ORDERS]
        assert any_ledger.read_window(plan.window_id) == OpenedWindow(left, WindowState.MERGED)
        assert [each.table for each in any_ledger.list_stopped(PIPELINE)] == [other.source]
        # The rows of the first load are in the target, although it has no watermark.
        assert any_ledger.read_tables(PIPELINE)[other.source].read_to == lsn(10)
        assert any_ledger.read_tables(PIPELINE)[ORDERS].read_to is None

    def test_merged_window_is_kept_when_a_check_refuses_its_last_table_and_dropped_on_request(
        self, any_ledger: PostgresLedger
    ) -> None:
        plan = merged(any_ledger, first_load(), 10)
        refused = [Validity(ORDERS, Verdict.REFUSED, "a check failed.")]
        assert any_ledger.refuse_merged(plan.window_id, refused) is None
        assert any_ledger.read_window(plan.window_id).state is WindowState.MERGED
        any_ledger.drop_merged(plan.window_id)
        assert any_ledger.unfinished_window(PIPELINE) is None
        assert watermark(any_ledger) is None
        assert any_ledger.read_tables(PIPELINE)[ORDERS].read_to == lsn(10)

    def test_unknown_window_is_named(self, any_ledger: PostgresLedger) -> None:
        with pytest.raises(OperatorError, match="window 77"):
            any_ledger.read_window(77)


def staged(ledger: PostgresLedger, plan: WindowPlan) -> list[int | None]:
    """Return the staged rows of each chunk of dbo.Orders."""
    return [stored.staged_rows for stored in ledger.list_chunks(plan.window_id, ORDERS)]
