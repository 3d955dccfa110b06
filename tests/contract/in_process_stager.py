"""``Stager`` without Spark: the statements, the data source and the COPY of the load job, one part after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.core.load_chunk import Bound, LoadChunk
from floodmark.core.naming import staging_table
from floodmark.core.window import WindowPlan
from floodmark.spark.data_source import ChangesPart, SqlServerReader, read_chunk_bounds
from floodmark.spark.stage import StageWriter
from floodmark.spark.stage_chunks import ChunkWriter
from floodmark.sqlserver.connection import SqlServerConnection
from floodmark.sync.ports import StagedRows
from floodmark.warehouse.connection import WarehouseConnection


@dataclass
class InProcessStager:
    source: SqlServerConnection
    warehouse: WarehouseConnection

    def stage_table(self, plan: WindowPlan, index: int) -> StagedRows:
        table = plan.tables[index]
        assert table.interval is not None
        batches = list(SqlServerReader(table, self.source, 1).read(ChangesPart(table.interval)))
        writer = self._writer(plan, index)
        staged = writer.write(writer.net_rows(batches), 0)
        return StagedRows(sum(batch.num_rows for batch in batches), staged)

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        return read_chunk_bounds(plan.tables[index], self.source)

    def stage_chunks(self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int) -> None:
        reader = SqlServerReader(plan.tables[index], self.source, parallel_reads, packed=True, chunks=chunks)
        for part in reader.partitions():
            list(ChunkWriter(self._writer(plan, index), plan)(reader.read(part)))

    def _writer(self, plan: WindowPlan, index: int) -> StageWriter:
        return StageWriter(plan.tables[index], staging_table(plan, index), plan.to_lsn, self.warehouse)
