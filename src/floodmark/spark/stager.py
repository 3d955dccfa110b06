"""``SparkStager``: reads a table of a window, nets its changes and stages them. No row passes through the driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.plan import Bound, LoadChunk, LoadKind, MemberRead, WindowPlan
from floodmark.core.position import Interval
from floodmark.core.schema import TableName
from floodmark.core.settings import NetSource
from floodmark.core.types import list_losses
from floodmark.spark.engine import Engine
from floodmark.spark.errors import recover
from floodmark.spark.net import PACKED_SCHEMA, drop_superseded_changes, gather_changes, pack, pack_members
from floodmark.spark.shared_pass import PassTable, stage_pass
from floodmark.spark.stage import (
    COUNTS_SCHEMA,
    CutTable,
    SmallTable,
    StageWriter,
    deal_in_turn,
    run_tasks,
    stage_cut_in_task,
    stage_small_tables,
)
from floodmark.sync.load import ReadSlots
from floodmark.sync.ports import (
    OpenCut,
    OpenReader,
    OpenShared,
    PlanParts,
    StagedCut,
    StagedPart,
    StagedRows,
    StagingSink,
    TableParts,
    TableReader,
)
from floodmark.sync.records import noted, parse_members

if TYPE_CHECKING:
    from floodmark.sync.ports import TableReader

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Reads:
    """How the tables of a window are read."""

    plan: WindowPlan
    parts: Mapping[TableName, TableParts]
    slots: ReadSlots
    """The statements that may read the source at a time."""


class SparkStager:
    """``sync.ports.Stager``.

    open_engine: called when the first task is about to start, and for each after it. open_cut: for a source whose
    tables can be read at one moment. open_shared: for a source that has the changes of all tables in one feed.
    """

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        open_reader: OpenReader,
        plan_parts: PlanParts,
        open_cut: OpenCut | None = None,
        open_shared: OpenShared | None = None,
    ) -> None:
        self._open_engine = open_engine
        self._open_reader = open_reader
        self._plan_parts = plan_parts
        self._open_cut = open_cut
        self._open_shared = open_shared
        self._planning = threading.Lock()
        self._reads: _Reads | None = None

    def stage_table(self, plan: WindowPlan, index: int, sink: StagingSink) -> StagedRows:
        """Read, net and stage a table. It may run for several tables at once. Raises from ``core.errors``."""
        table = plan.tables[index]
        with _recovered(str(table.source)):
            writer, reader = self._writer(plan, index, sink), self._reader(plan, index)
            reads = self._reads_of(plan)
            parts = list(enumerate(reads.parts[table.source].intervals))
            with reads.slots.taken(len(parts)) as tasks:
                groups = deal_in_turn(parts, tasks)
                if table.settings.net is NetSource.SERVER:
                    counts = self._run(groups, partial(writer.write_intervals, reader), COUNTS_SCHEMA)
                else:
                    counts = self.stage_changes(self._run(groups, partial(_read_packed, reader), PACKED_SCHEMA), writer)
                return _staged(counts)

    def stage_cut(self, plan: WindowPlan, sinks: Mapping[int, StagingSink]) -> StagedCut | None:
        if self._open_cut is None:
            return None
        tables = [CutTable(index, plan.tables[index], self._writer(plan, index, sinks[index])) for index in sinks]
        with _recovered(str(plan.pipeline)):
            return stage_cut_in_task(self._open_engine().session, self._open_cut(plan), tables)

    def stage_small(
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink]
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        if self._open_shared is not None:
            return self._stage_shared(plan, sinks, self._open_shared)
        reads = self._reads_of(plan)
        small = [each for index in sinks if (each := self._small_table(plan, index, sinks[index], reads)) is not None]
        if not small:
            return {}
        with _recovered(str(plan.pipeline)):
            wanted = min(len(small), self._cores())
            with reads.slots.taken(wanted) as tasks:
                return stage_small_tables(self._open_engine().session, small, tasks)

    def _stage_shared(
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink], open_shared: OpenShared
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        wanted = {index: plan.tables[index] for index in sinks}
        tables = [PassTable(i, each.source, self._writer(plan, i, sinks[i])) for i, each in wanted.items()]
        with _recovered(str(plan.pipeline)), self._reads_of(plan).slots.taken(self._cores()) as tasks:
            return stage_pass(self._open_engine().session, open_shared(wanted), tables, tasks)

    def _small_table(self, plan: WindowPlan, index: int, sink: StagingSink, reads: _Reads) -> SmallTable | None:
        table = plan.tables[index]
        parts = reads.parts[table.source]
        if parts.changes is None or len(parts.intervals) > 1:
            return None
        writer, reader = self._writer(plan, index, sink), self._reader(plan, index)
        return SmallTable(index, table.source, parts.intervals[0], parts.changes, reader, writer)

    def stage_changes(self, packed: DataFrame, writer: StageWriter) -> DataFrame:
        """Net and stage packed changes. Return the counts of each part."""
        return gather_changes(packed).mapInArrow(writer.write_packed, COUNTS_SCHEMA)

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        return self._reader(plan, index).read_chunk_bounds()

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return self._reader(plan, index).find_double_key()

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        """Read chunks with one task for each of the parallel reads, however many cores there are."""
        with _recovered(str(plan.tables[index].source)):
            writer, reader = self._writer(plan, index, sink), self._reader(plan, index)
            with self._reads_of(plan).slots.taken(parallel_reads) as tasks:
                groups = deal_in_turn(chunks, tasks)
                return _staged(self._run(groups, partial(writer.write_chunks, reader), COUNTS_SCHEMA)).parts

    def _reads_of(self, plan: WindowPlan) -> _Reads:
        """Return the reads of a window. The first of its tables plans them, the others wait."""
        with self._planning:
            if self._reads is None or self._reads.plan != plan:
                most = max(table.settings.max_reads for table in plan.tables)
                parts = self._plan_parts(plan, min(most, self._cores()))
                self._reads = _Reads(plan, parts, ReadSlots(most))
            return self._reads

    def _reader(self, plan: WindowPlan, index: int) -> TableReader:
        return self._open_reader(plan.tables[index], plan.end)

    def _writer(self, plan: WindowPlan, index: int, sink: StagingSink) -> StageWriter:
        table = plan.tables[index]
        for line in list_losses(table.feed.table, table.settings.temporal):
            _LOG.info("%s: %s", table.source, line)
        shape = self._reader(plan, index).shape
        if shape.remark and table.kind is LoadKind.CHANGES:
            _LOG.info("%s: %s", table.source, shape.remark)
        return StageWriter(shape, table.kind, table.settings.net, plan.rows_at(table), sink)

    def _run(self, groups: Sequence[Sequence[Any]], work: Callable[[Sequence[Any]], Any], schema: str) -> DataFrame:
        return run_tasks(self._open_engine().session, groups, work, schema)

    def _cores(self) -> int:
        return self._open_engine().cores()


def _read_packed(reader: TableReader, intervals: Sequence[tuple[int, Interval]]) -> Iterator[pa.RecordBatch]:
    shape = reader.shape
    for _, interval in intervals:
        members: list[MemberRead] = []
        batches = noted(reader.read(interval), members)
        yield from pack(batches, shape.key, partial(drop_superseded_changes, shape=shape))
        if members:
            yield pack_members(members)


def _staged(counts: DataFrame) -> StagedRows:
    """Run the tasks. Return the rows of all parts."""
    rows = counts.collect()
    parts = [StagedPart(row.part, row.staged_rows, row.receipt) for row in rows]
    members = [member for row in rows for member in parse_members(row.members)]
    return StagedRows(
        sum(row.read_rows for row in rows), sum(part.rows for part in parts), tuple(parts), tuple(members)
    )


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
