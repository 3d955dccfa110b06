"""``Stager`` without Spark: the statements, the data source and the COPY of the load job, one part after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from floodmark.core.load_chunk import Bound, LoadChunk
from floodmark.core.naming import staging_table
from floodmark.core.window import WindowPlan
from floodmark.spark.carried_errors import CarriedError, recover
from floodmark.spark.chunk_bounds import find_double_key, read_chunk_bounds
from floodmark.spark.data_source import ChangesPart, SqlServerReader
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
        with _recovered():
            batches = list(SqlServerReader(table, self.source, 1).read(ChangesPart(table.interval)))
        if not batches:
            return StagedRows(0, 0)
        # All changes of a key in one batch.
        whole = pa.concat_batches(batches)
        writer = self._writer(plan, index)
        with _recovered():
            return StagedRows(whole.num_rows, writer.write(writer.net_rows([whole]), 0))

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        return read_chunk_bounds(plan.tables[index], self.source)

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return find_double_key(plan.tables[index], self.source)

    def stage_chunks(self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int) -> None:
        reader = SqlServerReader(plan.tables[index], self.source, parallel_reads, packed=True, chunks=chunks)
        with _recovered():
            for part in reader.partitions():
                list(ChunkWriter(self._writer(plan, index), plan)(reader.read(part)))

    def _writer(self, plan: WindowPlan, index: int) -> StageWriter:
        return StageWriter(plan.tables[index], staging_table(plan, index), plan.to_lsn, self.warehouse)


@contextmanager
def _recovered() -> Iterator[None]:
    """As ``SparkStager`` does with what its workers raise."""
    try:
        yield
    except CarriedError as error:
        found = recover(error)
        assert found is not None
        raise found from None
