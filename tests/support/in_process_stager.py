"""``Stager`` without Spark: the statements and the COPY of the load job, one part after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from floodmark.core.plan import Bound, LoadChunk, MemberRead, WindowPlan
from floodmark.spark.stage import CutTable, StageWriter, read_results, stage_at_once
from floodmark.sync.ports import OpenCut, OpenReader, StagedCut, StagedPart, StagedRows, StagingSink
from floodmark.sync.records import noted


@dataclass
class InProcessStager:
    open_reader: OpenReader
    open_cut: OpenCut | None = None

    def stage_cut(self, plan: WindowPlan, sinks: Mapping[int, StagingSink]) -> StagedCut | None:
        if self.open_cut is None:
            return None
        tables = [CutTable(index, plan.tables[index], self._writer(plan, index, sinks[index])) for index in sinks]
        return read_results(list(stage_at_once(self.open_cut(plan), tables)))

    def stage_table(self, plan: WindowPlan, index: int, sink: StagingSink) -> StagedRows:
        table = plan.tables[index]
        assert table.interval is not None
        members: list[MemberRead] = []
        batches = list(noted(self.open_reader(table, plan.end).read(table.interval), members))
        if not any(batch.num_rows for batch in batches):
            return StagedRows(0, 0, members=tuple(members))
        # All changes of a key in one batch.
        whole = pa.concat_batches(batch.replace_schema_metadata(None) for batch in batches)
        staged = sink.write(0, self._writer(plan, index, sink).net_rows([whole]))
        return StagedRows(whole.num_rows, staged.rows, (staged,), tuple(members))

    def stage_small(self, plan: WindowPlan, sinks: Mapping[int, StagingSink]) -> Mapping[int, StagedRows]:
        return {}

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        return self.open_reader(plan.tables[index], plan.end).read_chunk_bounds()

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return self.open_reader(plan.tables[index], plan.end).find_double_key()

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        table = plan.tables[index]
        counts = self._writer(plan, index, sink).write_chunks(self.open_reader(table, plan.end), chunks)
        return [StagedPart(row["part"], row["staged_rows"]) for batch in counts for row in batch.to_pylist()]

    def _writer(self, plan: WindowPlan, index: int, sink: StagingSink) -> StageWriter:
        table = plan.tables[index]
        return StageWriter(
            self.open_reader(table, plan.end).shape, table.kind, table.settings.net, plan.rows_at(table), sink
        )
