"""``StagingSinkContract``: what every ``sync.ports.StagingSink`` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

import pyarrow as pa
import pytest
from warehouse_contract import both_kinds, one, planned
from warehouse_rig import WarehouseRig
from warehouse_shop import ORDERS, staged_batch

from floodmark.core.errors import WatermarkConflictError
from floodmark.core.plan import LoadKind, TableCounts
from floodmark.core.schema import TableName


class BrokenOffError(Exception):
    """The source cut the connection."""


def broken_off() -> Iterator[pa.RecordBatch]:
    """Yield rows, and break off."""
    yield staged_batch(one())
    raise BrokenOffError


class StagingSinkContract:
    """A test class of an adapter derives from it, with a fixture ``rig``."""

    @both_kinds
    def test_part_is_staged_with_all_of_its_batches(self, rig: WarehouseRig, kind: LoadKind) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        batches = iter([staged_batch(one(1)), staged_batch([]), staged_batch([*one(2), *one(3)])])
        staged = rig.warehouse.sink(plan, 0).write(1, batches)
        assert (staged.part, staged.rows) == (1, 3)
        assert rig.warehouse.count_parts(plan, 0) == {1: 3}
        assert next(batches, None) is None

    @both_kinds
    def test_part_without_batches_has_no_rows(self, rig: WarehouseRig, kind: LoadKind) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        staged = rig.warehouse.sink(plan, 0).write(2, iter(()))
        assert (staged.part, staged.rows) == (2, 0)
        assert rig.warehouse.count_parts(plan, 0) == {}

    @both_kinds
    def test_part_that_is_written_again_counts_once(self, rig: WarehouseRig, kind: LoadKind) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        for _ in range(3):
            rig.stage(plan, [*one(1), *one(2)], part=1)
        rig.stage(plan, one(3), part=0)
        if kind is LoadKind.FIRST_LOAD:
            assert rig.warehouse.count_parts(plan, 0) == {0: 1, 1: 2}
        assert rig.merge(plan, 3)[ORDERS].staged_rows == 3
        rig.finish(plan)
        assert sorted(rig.visible()) == [1, 2, 3]

    @pytest.mark.parametrize("heard", [0, 1], ids=["the first is heard", "the second is heard"])
    def test_merge_takes_the_rows_of_the_try_whose_result_it_is_given(self, rig: WarehouseRig, heard: int) -> None:
        plan = rig.open(planned(rig, LoadKind.CHANGES), to=10)
        rig.stage(plan, one(9), part=1)
        tries = [rig.stage(plan, [*one(1), *one(2)]), rig.stage(plan, [*one(1), *one(3)])]
        rig.report(plan, tries[heard])
        assert rig.merge(plan, 3)[ORDERS].staged_rows == 3
        rig.finish(plan)
        assert sorted(rig.visible()) == ([1, 2, 9], [1, 3, 9])[heard]

    def test_part_that_another_try_has_found_empty_has_no_rows(self, rig: WarehouseRig) -> None:
        plan = rig.open(planned(rig, LoadKind.CHANGES), to=10)
        rig.stage(plan, one(9), part=1)
        rig.stage(plan, one(1))
        rig.report(plan, rig.warehouse.sink(plan, 0).write(0, iter(())))
        rig.merge(plan, 1)
        rig.finish(plan)
        assert sorted(rig.visible()) == [9]

    @both_kinds
    def test_try_that_ends_when_the_window_is_merged_is_refused_and_checks_see_no_row_of_it(
        self, rig: WarehouseRig, kind: LoadKind
    ) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        rig.stage(plan, one(1))

        def late() -> Iterator[pa.RecordBatch]:
            yield staged_batch(one(2))
            counts.append(rig.merge(plan, 1))

        counts: list[Mapping[TableName, TableCounts]] = []
        if rig.warehouse.traits.shares_ledger:
            with pytest.raises(WatermarkConflictError):
                rig.warehouse.sink(plan, 0).write(1, late())
        else:
            rig.warehouse.sink(plan, 0).write(1, late())
        [checked] = rig.warehouse.open_rows(plan, counts[0])
        assert checked.staged is not None
        assert sorted(rig.rows(checked.staged)) == [1]
        rig.finish(plan)
        assert sorted(rig.visible()) == [1]

    @both_kinds
    def test_tries_of_a_part_that_overtake_each_other_count_once(self, rig: WarehouseRig, kind: LoadKind) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        together = Barrier(2)

        def batches(_: int) -> Iterator[pa.RecordBatch]:
            yield staged_batch(one(1))
            with suppress(BrokenBarrierError):  # a sink may let only one of them write at a time
                together.wait(timeout=1)
            yield staged_batch(one(2))

        with ThreadPoolExecutor(2) as pool:
            tries = list(pool.map(lambda rows: rig.warehouse.sink(plan, 0).write(0, rows), map(batches, range(2))))
        rig.report(plan, tries[0])
        assert rig.merge(plan, 2)[ORDERS].staged_rows == 2
        rig.finish(plan)
        assert sorted(rig.visible()) == [1, 2]

    @both_kinds
    def test_parts_are_written_at_once(self, rig: WarehouseRig, kind: LoadKind) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        with ThreadPoolExecutor(3) as pool:
            parts = list(pool.map(lambda part: rig.stage(plan, one(part), part), range(3)))
        assert [(staged.part, staged.rows) for staged in parts] == [(0, 1), (1, 1), (2, 1)]
        assert rig.warehouse.count_parts(plan, 0) == {0: 1, 1: 1, 2: 1}

    @both_kinds
    def test_part_whose_rows_break_off_leaves_nothing(self, rig: WarehouseRig, kind: LoadKind) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        with pytest.raises(BrokenOffError):
            rig.warehouse.sink(plan, 0).write(0, broken_off())
        assert rig.warehouse.count_parts(plan, 0) == {}
        assert rig.stage(plan, one()).rows == 1

    def test_part_of_changes_whose_second_try_breaks_off_stays_as_it_was(self, rig: WarehouseRig) -> None:
        plan = rig.open(planned(rig, LoadKind.CHANGES), to=10)
        rig.stage(plan, [*one(1), *one(2)])
        with pytest.raises(BrokenOffError):
            rig.warehouse.sink(plan, 0).write(0, broken_off())
        assert rig.warehouse.count_parts(plan, 0) == {0: 2}

    @both_kinds
    def test_sink_of_an_overtaken_attempt_is_refused_and_leaves_nothing(
        self, rig: WarehouseRig, kind: LoadKind
    ) -> None:
        overtaken = rig.open(planned(rig, kind), to=10)
        sink = rig.warehouse.sink(overtaken, 0)
        later = rig.prepare(overtaken.window_id)
        with pytest.raises(WatermarkConflictError):
            sink.write(0, iter([staged_batch(one())]))
        assert rig.warehouse.count_parts(later, 0) == {}
        rig.stage(later, one(2))
        with pytest.raises(WatermarkConflictError):
            sink.write(0, iter([staged_batch(one())]))
        assert rig.warehouse.count_parts(later, 0) == {0: 1}

    @both_kinds
    def test_sink_of_a_finished_window_is_refused(self, rig: WarehouseRig, kind: LoadKind) -> None:
        plan = rig.open(planned(rig, kind), to=10)
        sink = rig.warehouse.sink(plan, 0)
        rig.merge(plan)
        rig.finish(plan)
        with pytest.raises(WatermarkConflictError):
            sink.write(0, iter([staged_batch(one())]))
        assert rig.visible() == {}
