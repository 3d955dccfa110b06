"""``SparkStager``: reads the tables of a window, nets and stages them.

Few changes are staged by threads of the driver, before Spark has started. All else is done by tasks of Spark.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from py4j.protocol import Py4JJavaError
from pyarrow import RecordBatch
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.plan import Bound, LoadChunk, LoadKind, WindowPlan
from floodmark.core.types import list_losses
from floodmark.spark.engine import Engine
from floodmark.spark.net import PACKED_SCHEMA, Entry, entries, gather_changes
from floodmark.spark.stage import (
    RESULTS_SCHEMA,
    TASK_COST,
    NumberedTask,
    StageWriter,
    Writers,
    deal,
    deal_in_turn,
    join_results,
    pack_changes,
    recover,
    run_tasks,
    stage_directly,
    write_chunks,
    write_entries,
    write_packed,
)
from floodmark.sync.columns import MaskKeys, find_mask_key
from floodmark.sync.load import TABLES_AT_ONCE, ReadSlots
from floodmark.sync.ports import (
    OpenReader,
    PlanReads,
    ReadTask,
    StagedPart,
    StagedRows,
    StagingSink,
    TableReader,
    WindowReads,
)
from floodmark.sync.sessions import kept_sessions

_LOG = logging.getLogger(__name__)
MOST_BYTES = 64 << 20
"""The changes that a task holds in memory; LOBs may be of any size."""
DRIVER_CHANGES = 3_000_000
"""The cost, in changes, up to which the driver stages a window: it takes less time than Spark (ADR 103)."""
DRIVER_BYTES = 512 << 20
"""The changes that the driver holds in memory to bring them together by key."""
DRIVER_ROWS = 10_000_000
"""The rows of tables that are read as a whole, of one window, up to which the driver stages them."""
_Results = dict[int, StagedRows | FloodmarkError]
_Rows = Sequence[Mapping[str, Any]]


class SparkStager:
    """``sync.ports.Stager``.

    open_engine: called when the first task of Spark is about to start, and for each after it. mask_keys: the secrets of
    masks. driver_changes: the cost of a window, in changes, up to which Spark is not needed; with 0 it always is.
    """

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        open_reader: OpenReader,
        plan_reads: PlanReads,
        mask_keys: MaskKeys | None = None,
        driver_changes: int = DRIVER_CHANGES,
    ) -> None:
        self._open_engine = open_engine
        self._open_reader = open_reader
        self._plan_reads = plan_reads
        self._mask_keys = mask_keys or {}
        self._driver_changes = driver_changes
        self._chunk_rows = 0
        """The rows of chunks that the driver has staged."""
        self._slots_known = threading.Lock()
        self._slots: tuple[WindowPlan, ReadSlots] | None = None

    def stage_changes(
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink]
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        """Stage the tables of a window: in the driver if the changes are few, else with one job of Spark for those that
        need no shuffle and one for the others."""
        reads, is_here = self._choose_reads(plan)
        read = sorted({index for task in reads.tasks for index in task.tables})
        writers = {index: self._writer(plan, index, sinks[index]) for index in read}
        with _recovered(plan.pipeline):
            results = self._stage(plan, writers, reads.tasks, is_here=is_here)
            if reads.unite is not None:
                staged = {index: each for index, each in results.items() if isinstance(each, StagedRows)}
                members = reads.unite({index: each.members for index, each in staged.items()})
                if members is None:
                    results = self._stage(plan, writers, reads.otherwise)
                else:
                    results |= {index: replace(each, members=tuple(members[index])) for index, each in staged.items()}
        return {index: results.get(index, StagedRows(0, 0)) for index in sinks}

    def _choose_reads(self, plan: WindowPlan) -> tuple[WindowReads, bool]:
        """Return the reads of a window, and whether the driver makes them."""
        if self._driver_changes:
            # A small table is read in one part, whatever the cores are: the question for them would wait for Spark.
            reads = self._plan_reads(plan, 1)
            tables = sum(len(task.tables) for task in reads.tasks)
            if reads.changes is not None and reads.changes + TASK_COST * tables <= self._driver_changes:
                _LOG.info("The window is staged without Spark. It has about %s counted changes.", reads.changes)
                if all(task.changes is not None for task in reads.tasks):
                    return reads, True
                return self._plan_reads(plan, min(_most_reads(plan), TABLES_AT_ONCE)), True
        return self._plan_reads(plan, min(_most_reads(plan), self._cores())), False

    def _stage(
        self, plan: WindowPlan, writers: Writers, tasks: Sequence[ReadTask], *, is_here: bool = False
    ) -> _Results:
        direct = [(number, task) for number, task in enumerate(tasks) if task.is_net or task.changes is not None]
        alone = [index for _, task in direct if not task.is_net for index in task.tables]
        streamed = {index for _, task in direct if task.is_net for index in task.tables}
        # The result of a table would hide that another task of it, in memory, had none.
        assert len(set(alone)) == len(alone) and streamed.isdisjoint(alone), "two tasks stage a table directly"  # noqa: S101  (planned by the source)
        slots, results = self._slots_of(plan), _Results()
        if direct:
            with slots.taken(min(len(direct), TABLES_AT_ONCE if is_here else self._cores())) as groups:
                stage = _stage_here if is_here else self._stage_directly
                results = join_results(stage(writers, deal(direct, groups)))
        # A task that had too many changes for memory has no result: it reads them again.
        if left := [task for task in tasks if results.keys().isdisjoint(task.tables)]:
            with slots.taken(len(left)) as groups:
                dealt = deal_in_turn(left, groups)
                rows = gather_here(writers, dealt) if is_here else None
                results |= join_results(self._stage_gathered(writers, dealt) if rows is None else rows)
        return results

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        return self._reader(plan, index).read_chunk_bounds()

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return self._reader(plan, index).find_double_key()

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        """Read chunks with one task for each of the parallel reads, however many cores there are."""
        table = plan.tables[index]
        most = self._chunk_rows + len(chunks) * table.settings.first_load.chunk_rows
        is_here = self._driver_changes > 0 and most <= DRIVER_ROWS and not table.settings.partitions
        with _recovered(str(table.source)), self._slots_of(plan).taken(parallel_reads) as tasks:
            work = partial(write_chunks, index, self._writer(plan, index, sink), self._reader(plan, index))
            groups = deal_in_turn(chunks, tasks)
            rows = _run_here(groups, work) if is_here else self._collect(groups, work)
        parts = [StagedPart(row["part"], row["staged_rows"], row["receipt"]) for row in rows]
        if is_here:
            self._chunk_rows += sum(part.rows for part in parts)
        return parts

    def _slots_of(self, plan: WindowPlan) -> ReadSlots:
        """Return the statements of a window that may read the source at a time. Its tables share them."""
        with self._slots_known:
            if self._slots is None or self._slots[0] != plan:
                self._slots = plan, ReadSlots(_most_reads(plan))
            return self._slots[1]

    def _reader(self, plan: WindowPlan, index: int) -> TableReader:
        return self._open_reader(plan.tables[index], plan.end)

    def _writer(self, plan: WindowPlan, index: int, sink: StagingSink) -> StageWriter:
        table = plan.tables[index]
        for line in list_losses(table.feed.table, table.settings.temporal):
            _LOG.info("%s: %s", table.source, line)
        shape = self._reader(plan, index).shape
        if shape.remark and table.kind is LoadKind.CHANGES:
            _LOG.info("%s: %s", table.source, shape.remark)
        return StageWriter(table, shape, plan.rows_at(table), sink, find_mask_key(table, self._mask_keys))

    def _stage_directly(self, writers: Writers, groups: Sequence[Sequence[NumberedTask]]) -> _Rows:
        return self._collect(groups, partial(stage_directly, writers, MOST_BYTES))

    def _stage_gathered(self, writers: Writers, groups: Sequence[Sequence[ReadTask]]) -> _Rows:
        packed = self._run(groups, partial(pack_changes, writers), PACKED_SCHEMA)
        staged = gather_changes(packed).mapInArrow(partial(write_packed, writers), RESULTS_SCHEMA)
        return [row.asDict() for row in staged.collect()]

    def _collect(self, groups: Sequence[Sequence[Any]], work: Callable[[Sequence[Any]], Any]) -> _Rows:
        return [row.asDict() for row in self._run(groups, work, RESULTS_SCHEMA).collect()]

    def _run(self, groups: Sequence[Sequence[Any]], work: Callable[[Sequence[Any]], Any], schema: str) -> DataFrame:
        return run_tasks(self._open_engine().session, groups, work, schema)

    def _cores(self) -> int:
        return self._open_engine().cores()


def _stage_here(writers: Writers, groups: Sequence[Sequence[NumberedTask]]) -> _Rows:
    return _run_here(groups, partial(stage_directly, writers, MOST_BYTES))


def _run_here(groups: Sequence[Sequence[Any]], work: Callable[[Sequence[Any]], Iterator[RecordBatch]]) -> _Rows:
    """Do the work of groups in threads of this process, which end early when one fails.

    Returns, or raises the first error, when none of them writes any more.
    """
    failed = threading.Event()

    def run(group: Sequence[Any]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        try:
            with kept_sessions():
                for batch in work(group):
                    rows += batch.to_pylist()
                    if failed.is_set():
                        break
        except BaseException:
            failed.set()
            raise
        return rows

    with ThreadPoolExecutor(max(len(groups), 1), thread_name_prefix="read") as pool:
        return list(chain.from_iterable(pool.map(run, groups)))


class _Budget:
    """The bytes that threads may hold together."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._known = threading.Lock()

    @property
    def is_spent(self) -> bool:
        return self._left < 0

    def take(self, size: int) -> None:
        with self._known:
            self._left -= size


def gather_here(writers: Writers, groups: Sequence[Sequence[ReadTask]]) -> _Rows | None:
    """Bring the changes of tasks together by key in threads of this process, and stage them.

    Return None where they are too large for its memory: then nothing was written. Raises as ``_stage_here``.
    """
    budget = _Budget(DRIVER_BYTES)
    with ThreadPoolExecutor(len(groups), thread_name_prefix="read") as pool:
        packed = list(pool.map(partial(_pack_group, writers, budget), groups))
    if budget.is_spent:
        _LOG.info("The changes need more than %s MB of memory. They are read again by Spark.", DRIVER_BYTES >> 20)
        return None
    parts: list[list[Entry]] = [[] for _ in range(TABLES_AT_ONCE)]
    for entry in chain.from_iterable(packed):
        parts[entry.bucket % TABLES_AT_ONCE].append(entry)
    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="write") as pool:
        found = pool.map(partial(_write_part, writers), parts, range(TABLES_AT_ONCE))
        return [row for batch in chain.from_iterable(found) for row in batch.to_pylist()]


def _pack_group(writers: Writers, budget: _Budget, group: Sequence[ReadTask]) -> list[Entry]:
    packed: list[Entry] = []
    with kept_sessions():
        for batch in pack_changes(writers, group):
            budget.take(batch.nbytes)
            if budget.is_spent:
                return []
            packed += entries([batch])
    return packed


def _write_part(writers: Writers, packed: list[Entry], part: int) -> Sequence[RecordBatch]:
    packed.sort(key=lambda entry: entry.bucket)
    return list(write_entries(writers, packed, part))


def _most_reads(plan: WindowPlan) -> int:
    return max(table.settings.max_reads for table in plan.tables)


@contextmanager
def _recovered(subject: str) -> Iterator[None]:
    """Raise Spark's exception as the error that a worker raised, or as a bug with Spark's message."""
    try:
        yield
    except FloodmarkError:
        raise
    except (PySparkException, Py4JJavaError) as error:
        found = recover(error)
        if found is None:
            raise FloodmarkBugError(subject, "Spark failed.", "See the log of the job.", str(error)) from error
        raise found from None
