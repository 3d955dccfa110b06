"""Staging a first load: each chunk's rows and its state in the ledger are one transaction.

Runs in Spark's Python workers. A worker may outlive its driver, and a driver may be believed dead and be alive: before
it commits, a chunk looks whether its load is still the latest attempt at the window, and locks that answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from floodmark.core.errors import FloodmarkBugError
from floodmark.core.schema import TableName
from floodmark.core.window.plan import WindowPlan
from floodmark.postgres.ledger.loads import refuse_stale
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.arrow_session import ArrowSession
from floodmark.sources.cdc.columns import supported_columns
from floodmark.spark.error_transport import transported_errors
from floodmark.spark.packing import ChunkStream, unpack_chunks
from floodmark.spark.stage import COUNTS, StageWriter, staging_batch, staging_schema


@dataclass(frozen=True)
class ChunkWriter:
    """Writes the chunks of one table of a window. window: of the attempt that this load is, whatever its tables.

    The statements travel with it: an executor need not have the files.
    """

    writer: StageWriter
    window: WindowPlan
    fence_sql: str = field(default_factory=lambda: read_sql("fence_load"))
    stage_sql: str = field(default_factory=lambda: read_sql("stage_load_chunk"))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``DataFrame.mapInArrow`` with ``COUNTS_SCHEMA``. The batches are packed chunks of ``sqlserver_cdc``."""
        with transported_errors():
            for chunk in unpack_chunks(batches):
                staged = self.write(chunk)
                yield pa.RecordBatch.from_arrays([pa.array([staged], pa.int64())] * 2, schema=COUNTS)

    def write(self, chunk: ChunkStream) -> int:
        """The number of rows. Raises WatermarkConflictError, and leaves nothing, for a load that was overtaken."""
        plan = self.writer.plan
        rows = self.writer.net_rows(chunk)
        with ArrowSession(self.writer.warehouse, str(plan.source)) as session:
            first = next(rows, None)
            staged = 0
            if first is not None:
                columns = supported_columns(plan.instance.table, plan.temporal)
                numbered = (staging_batch(batch, columns, chunk.number) for batch in chain([first], rows))
                staged = session.copy(self.writer.staging, staging_schema(plan, columns), numbered)
            if self._is_recorded(session, plan.source, chunk.number, staged):
                session.commit()
        return staged

    def _is_recorded(self, session: ArrowSession, source: TableName, number: int, rows: int) -> bool:
        """False: another task of this load has staged the chunk, so that these rows must not come on top."""
        found = session.fetch(self.fence_sql.format(window_id=int(self.window.window_id)))
        if not found:
            raise FloodmarkBugError(str(source), f"window {self.window.window_id} is gone.")
        refuse_stale(self.window, int(str(found[0][0])), str(found[0][1]))
        values = {
            "window_id": int(self.window.window_id), "attempt": int(self.window.attempt), "chunk_no": int(number),
            "rows": int(rows), "source_schema": _literal(source.schema), "source_name": _literal(source.name),
        }  # fmt: skip
        return bool(session.fetch(self.stage_sql.format(**values)))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
