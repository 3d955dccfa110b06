"""``SparkStager``: reads a table of a window, nets its changes and stages them. No row passes through the driver."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.interval import Interval
from floodmark.core.policies import NetSource
from floodmark.core.schema import TableName
from floodmark.core.types import list_losses
from floodmark.core.window.chunks import Bound, LoadChunk, chunk_to_json
from floodmark.core.window.plan import LoadKind, TablePlan, WindowPlan
from floodmark.core.window.plan_json import plan_to_json
from floodmark.spark import data_source
from floodmark.spark.error_transport import recover
from floodmark.spark.net import gather_changes
from floodmark.spark.small_tables import SmallTable, stage_small_tables
from floodmark.spark.stage import COUNTS_SCHEMA, StageWriter
from floodmark.sync.ports.reader import OpenReader, PlanParts, TableParts, TableReader
from floodmark.sync.ports.stager import StagedRows
from floodmark.sync.ports.staging import StagedPart, StagingSink
from floodmark.sync.run.read_slots import ReadSlots

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Reads:
    """How the tables of a window are read."""

    plan: WindowPlan
    parts: Mapping[TableName, TableParts]
    slots: ReadSlots
    """The statements that may read the source at a time."""


class SparkStager:
    """``sync.ports.stager.Stager``. The session has the data source over the same ``open_reader`` registered."""

    def __init__(self, session: SparkSession, open_reader: OpenReader, plan_parts: PlanParts) -> None:
        self._session = session
        self._open_reader = open_reader
        self._plan_parts = plan_parts
        self._planning = threading.Lock()
        self._reads: _Reads | None = None

    def stage_table(self, plan: WindowPlan, index: int, sink: StagingSink) -> StagedRows:
        """Read, net and stage a table. It may run for several tables at once. Raises from ``core.errors``."""
        table = plan.tables[index]
        with _recovered(str(table.source)):
            writer = self._writer(plan, index, sink)
            reads = self._reads_of(plan)
            intervals = reads.parts[table.source].intervals
            with reads.slots.taken(len(intervals)) as tasks:
                # A task of a coalesced read takes one part after another.
                rows = self._read(plan, index, intervals=intervals).coalesce(tasks)
                return self.stage_rows(rows, table, writer)

    def stage_small(
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink]
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        reads = self._reads_of(plan)
        small = [each for index in sinks if (each := self._small_table(plan, index, sinks[index], reads)) is not None]
        if not small:
            return {}
        wanted = min(len(small), self._session.sparkContext.defaultParallelism)
        with _recovered(str(plan.pipeline)), reads.slots.taken(wanted) as tasks:
            return stage_small_tables(self._session, small, tasks)

    def _small_table(self, plan: WindowPlan, index: int, sink: StagingSink, reads: _Reads) -> SmallTable | None:
        table = plan.tables[index]
        parts = reads.parts[table.source]
        if parts.changes is None or len(parts.intervals) > 1:
            return None
        writer, reader = self._writer(plan, index, sink), self._reader(plan, index)
        return SmallTable(index, table.source, parts.intervals[0], parts.changes, reader, writer)

    def stage_rows(self, rows: DataFrame, table: TablePlan, writer: StageWriter) -> StagedRows:
        """Net and stage rows as ``sqlserver_cdc`` packs them."""
        if table.kind is LoadKind.CHANGES and table.net is not NetSource.SERVER:
            rows = gather_changes(rows)
        counts = rows.mapInArrow(writer.write_part, COUNTS_SCHEMA).collect()
        parts = [StagedPart(row.part, row.staged_rows, row.receipt) for row in counts]
        return StagedRows(sum(row.read_rows for row in counts), sum(part.rows for part in parts), tuple(parts))

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        return self._reader(plan, index).read_chunk_bounds()

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return self._reader(plan, index).find_double_key()

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        """Read chunks with one task for each of the parallel reads, however many cores there are."""
        with _recovered(str(plan.tables[index].source)):
            writer = self._writer(plan, index, sink)
            with self._reads_of(plan).slots.taken(parallel_reads) as tasks:
                rows = self._read(plan, index, tasks, chunks)
                counts = rows.mapInArrow(writer.write_chunks, COUNTS_SCHEMA).collect()
        return [StagedPart(row.part, row.staged_rows, row.receipt) for row in counts]

    def _reads_of(self, plan: WindowPlan) -> _Reads:
        """Return the reads of a window. The first of its tables plans them, the others wait."""
        with self._planning:
            if self._reads is None or self._reads.plan != plan:
                most = max(table.max_reads for table in plan.tables)
                parts = self._plan_parts(plan, min(most, self._session.sparkContext.defaultParallelism))
                self._reads = _Reads(plan, parts, ReadSlots(most))
            return self._reads

    def _reader(self, plan: WindowPlan, index: int) -> TableReader:
        return self._open_reader(plan.tables[index], plan.end)

    def _writer(self, plan: WindowPlan, index: int, sink: StagingSink) -> StageWriter:
        table = plan.tables[index]
        for line in list_losses(table.feed.table, table.temporal):
            _LOG.info("%s: %s", table.source, line)
        shape = self._reader(plan, index).shape
        if shape.remark and table.kind is LoadKind.CHANGES:
            _LOG.info("%s: %s", table.source, shape.remark)
        return StageWriter(shape, table.kind, table.net, plan.to_lsn, sink)

    def _read(
        self,
        plan: WindowPlan,
        index: int,
        parts: int = 1,
        chunks: Sequence[LoadChunk] = (),
        intervals: Sequence[Interval] = (),
    ) -> DataFrame:
        # The plan with only this table: the options of a read travel with each of its tasks.
        narrow = replace(plan, tables=(plan.tables[index],))
        return (
            self._session.read.format(data_source.NAME)
            .option(data_source.PLAN_OPTION, json.dumps(plan_to_json(narrow)))
            .option(data_source.INDEX_OPTION, 0)
            .option(data_source.PARTS_OPTION, parts)
            .option(data_source.INTERVALS_OPTION, data_source.intervals_to_json(intervals))
            .option(data_source.CHUNKS_OPTION, json.dumps([chunk_to_json(chunk) for chunk in chunks]))
            .load()
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
