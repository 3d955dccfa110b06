"""The groups of read tasks, and what an error in one of them does to the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from change_histories import change_batch, histories_plan, random_history, shape_of
from floodmark.core.errors import FloodmarkBugError, FloodmarkError, SourceUnavailableError, TargetRefusedError
from floodmark.core.plan import MemberRead, WindowPlan
from floodmark.core.position import Interval, Lsn
from floodmark.core.schema import TableName
from floodmark.core.snapshot import LogEntry
from floodmark.spark.stage import (
    StageWriter,
    Writers,
    deal,
    join_results,
    pack_changes,
    stage_directly,
    write_packed,
)
from floodmark.spark.stager import SparkStager
from floodmark.sync.ports import Found, StagedPart, StagedRows, TableRead, WindowReads
from floodmark.sync.records import attach_members
from table_plans import with_settings

END = Lsn(b"\x01" * 10)
ROWS = change_batch(random_history(0, seed=1).changes)


@dataclass(frozen=True)
class FailingSink:
    error: Exception | None

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        rows = sum(batch.num_rows for batch in batches)
        if self.error:
            raise self.error
        return StagedPart(part, rows, "there" if rows else "")


@dataclass(frozen=True)
class ListedReader:
    """A reader that ends with an error, if it has one."""

    batches: tuple[pa.RecordBatch, ...] = ()
    error: Exception | None = None
    shape = shape_of(histories_plan())

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        yield from self.batches
        if self.error:
            raise self.error


@dataclass(frozen=True)
class ListedTask:
    """A task of two tables."""

    found: tuple[Found, ...]
    is_net: bool = False
    changes: int | None = 1
    tables: tuple[int, ...] = (0, 1)

    def read(self) -> Iterator[Found]:
        return iter(self.found)


def table_read(index: int, changes: int | None = 1, reader: ListedReader | None = None) -> TableRead:
    plan: Any = with_settings(histories_plan(), source=TableName("dbo", f"T{index}"))
    opened: Any = reader or ListedReader()
    return TableRead(index, plan, opened, Interval(Lsn(b"\0\0\0\1".ljust(10, b"\0")), END), changes)


def writers_of(*errors: Exception | None) -> Writers:
    """Return the writer of each table. Its sink raises an error, if there is one."""
    plan = histories_plan()
    return {
        index: StageWriter(table_read(index).table, shape_of(plan), END.value, FailingSink(error))
        for index, error in enumerate(errors)
    }


def results_of(batches: Iterator[pa.RecordBatch]) -> dict[int, StagedRows | FloodmarkError]:
    return join_results(row for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("error", [TargetRefusedError("dbo.T1", "no"), ZeroDivisionError()])
@pytest.mark.parametrize("is_of_sink", [True, False])
def test_error_of_one_table_does_not_stop_the_next_ones(error: Exception, is_of_sink: bool) -> None:
    writers = writers_of(None, error if is_of_sink else None, None)
    broken = ListedReader((ROWS,), None if is_of_sink else error)
    tasks = [(0, table_read(0)), (1, table_read(1, reader=broken)), (2, table_read(2))]
    found = results_of(stage_directly(writers, 1 << 20, tasks))
    assert [isinstance(found[index], FloodmarkError) for index in range(3)] == [False, True, False]


@pytest.mark.parametrize("is_of_sink", [True, False])
def test_error_that_all_tables_would_have_ends_the_group(is_of_sink: bool) -> None:
    error = SourceUnavailableError("dbo.T1", "gone")
    writers = writers_of(None, error if is_of_sink else None, None)
    broken = ListedReader((ROWS,), None if is_of_sink else error)
    tasks = [(0, table_read(0)), (1, table_read(1, reader=broken)), (2, table_read(2))]
    results = stage_directly(writers, 1 << 20, tasks)
    assert next(results)["number"].to_pylist() == [0]
    with pytest.raises(SourceUnavailableError):
        next(results)


@pytest.mark.parametrize("is_net", [True, False])
def test_what_is_found_of_each_table_is_in_its_result(is_net: bool) -> None:
    """A table whose rows end with an error has none, and does not stop the next one."""
    members, moment = [MemberRead("one", "a", "b")], LogEntry(END, None)
    task = ListedTask(
        ((0, ROWS), (0, TargetRefusedError("dbo.T0", "no")), (1, moment), (1, attach_members(ROWS, members))), is_net
    )
    direct = results_of(stage_directly(writers_of(None, None), 1 << 20, [(7, task)]))
    packed = sorted(pack_changes(writers_of(None, None), [task]), key=lambda batch: batch["bucket"][0].as_py())
    gathered = results_of(write_packed(writers_of(None, None), iter(packed)))
    for found, part in ((direct, 7), (gathered, 0)):
        assert isinstance(found[0], TargetRefusedError)
        rows = found[1]
        assert isinstance(rows, StagedRows)
        assert (rows.read_rows, rows.members, rows.read_to) == (ROWS.num_rows, tuple(members), moment)
        assert 0 < rows.staged_rows <= ROWS.num_rows
        assert [each.part for each in rows.parts] == [part]


def test_rows_that_cannot_be_netted_do_not_stop_the_other_table() -> None:
    """The masks of one instance have one length."""
    place = ROWS.schema.get_field_index("__$update_mask")
    masks = pa.array([b"\x01" * (1 + row % 2) for row in range(ROWS.num_rows)], ROWS.schema.field(place).type)
    task = ListedTask(((0, ROWS.set_column(place, ROWS.schema.field(place), masks)), (1, ROWS)))
    direct = results_of(stage_directly(writers_of(None, None), 1 << 20, [(0, task)]))
    packed = sorted(pack_changes(writers_of(None, None), [task]), key=lambda batch: batch["bucket"][0].as_py())
    gathered = results_of(write_packed(writers_of(None, None), iter(packed)))
    for found in (direct, gathered):
        assert isinstance(found[0], FloodmarkBugError)
        assert isinstance(found[1], StagedRows)


def test_task_with_too_many_changes_for_memory_has_no_result() -> None:
    task = table_read(0, reader=ListedReader((ROWS, ROWS)))
    assert list(stage_directly(writers_of(None), 1, [(0, task)])) == []
    found = results_of(stage_directly(writers_of(None), 1, [(0, replace(task, is_net=True))]))
    assert found.keys() == {0}


def test_groups_have_about_as_many_changes_and_none_is_empty() -> None:
    changes = (40_000, 9_000, 9_000, 9_000, 10)
    tasks = [(number, table_read(number, changes=count)) for number, count in enumerate(changes)]
    groups = deal(tasks, 2)
    assert sorted(sorted(number for number, _ in group) for group in groups) == [[0], [1, 2, 3, 4]]
    assert [len(group) for group in deal(tasks[:1], 4)] == [1]


@pytest.mark.parametrize(
    ("counts", "asks_for_cores"),
    [
        ([20] * 500, False),
        ([20_000] * 10, False),
        ([20] * 6_000, True),
        ([50_000] * 10, False),
        ([50_000] * 60, True),
        ([20, None], True),
    ],
)
def test_driver_stages_a_window_of_many_small_tables(counts: list[int | None], asks_for_cores: bool) -> None:
    tasks = [table_read(number, changes=count) for number, count in enumerate(counts)]
    asked: list[int] = []

    def plan_reads(plan: WindowPlan, most: int) -> WindowReads:
        asked.append(most)
        return WindowReads(tasks, changes=None if None in counts else sum(filter(None, counts)))

    opened: list[int] = []
    engine: Any = SimpleNamespace(cores=lambda: opened.append(1) or 16)
    stager: Any = SparkStager(lambda: engine, pytest.fail, plan_reads)
    plan: Any = SimpleNamespace(tables=[histories_plan()])
    reads, is_here = stager._choose_reads(plan)
    assert reads.tasks == tasks
    assert is_here is not asks_for_cores
    assert bool(opened) is asks_for_cores
    assert len(asked) == 1 + asks_for_cores


def test_table_that_two_tasks_would_stage_directly_is_refused() -> None:
    """A task that found too many changes for memory has no result, which the result of the other one would hide."""
    stager: Any = SparkStager(*[pytest.fail] * 3)
    with pytest.raises(AssertionError, match="two tasks stage a table directly"):
        stager._stage(None, {}, [table_read(0), ListedTask((), is_net=True)])
