"""Staging: each Spark task sends its batches to the warehouse by COPY, in one transaction of its own.

Runs in Spark's Python workers. The rows never pass through the driver; what comes back is one row of counts per task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext

from floodmark.core.lsn import Lsn
from floodmark.core.naming import (
    LSN_COLUMN,
    OPERATION_COLUMN,
    PART_COLUMN,
    keep_column,
    lob_columns,
    quote,
    quote_table,
)
from floodmark.core.policies import NetSource
from floodmark.core.schema import TableName
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.postgres.connection import WarehouseConnection
from floodmark.postgres.warehouse.arrow_session import ArrowSession
from floodmark.sources.cdc.columns import TransportColumn, supported_columns, to_staging
from floodmark.spark.error_transport import transported_errors
from floodmark.spark.net import collapse_changes
from floodmark.spark.packing import Unpacked
from floodmark.spark.rows import Batches, adapt_net_changes, stamp_first_load

COUNTS_SCHEMA = "read_rows long, staged_rows long"
COUNTS = pa.schema([("read_rows", pa.int64()), ("staged_rows", pa.int64())])


@dataclass(frozen=True)
class StageWriter:
    """Writes the rows of one table. Travels to the workers, with the warehouse's password in it, and not into any log.

    to_lsn: stamped on the rows of a first load.
    """

    plan: TablePlan
    staging: TableName
    to_lsn: Lsn
    warehouse: WarehouseConnection

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``DataFrame.mapInArrow`` with ``COUNTS_SCHEMA``. The batches are packed ones of ``sqlserver_cdc``."""
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        with transported_errors():
            rows = Unpacked(batches)
            staged = self.write(self.net_rows(rows), part)
        yield pa.RecordBatch.from_arrays(
            [pa.array([rows.source_rows], pa.int64()), pa.array([staged], pa.int64())], schema=COUNTS
        )

    def net_rows(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The stored columns, ``__lsn``, ``__op`` and the keep flags, one row per key. Batches of whole keys."""
        if self.plan.kind is LoadKind.FIRST_LOAD:
            return stamp_first_load(batches, self.plan, self.to_lsn)
        if self.plan.net is NetSource.SERVER:
            return adapt_net_changes(batches, self.plan)
        return collapse_changes(batches, self.plan)

    def write(self, rows: Iterator[pa.RecordBatch], part: int) -> int:
        """Replace what an earlier try of this part has written. Returns the number of rows. Raises from core.errors."""
        first = next(rows, None)
        if first is None:
            return 0
        columns = supported_columns(self.plan.instance.table, self.plan.temporal)
        batches = (staging_batch(batch, columns, part) for batch in chain([first], rows))
        mine = f"{quote(PART_COLUMN)} = {part:d}"
        with ArrowSession(self.warehouse, str(self.plan.source)) as session:
            session.execute(f"DELETE FROM {quote_table(self.staging)} WHERE {mine}")  # noqa: S608
            staged = session.copy(self.staging, staging_schema(self.plan, columns), batches)
            session.commit()
        return staged


def staging_schema(plan: TablePlan, columns: tuple[TransportColumn, ...]) -> pa.Schema:
    """What COPY sends; the staging table has the same columns under the same names, in any order."""
    own = [(LSN_COLUMN, pa.binary()), (OPERATION_COLUMN, pa.int16()), (PART_COLUMN, pa.int32())]
    keep = [(keep_column(name), pa.bool_()) for name in lob_columns(plan.instance.table)]
    return pa.schema([*((column.name, column.staging_type) for column in columns), *own, *keep])


def staging_batch(batch: pa.RecordBatch, columns: tuple[TransportColumn, ...], part: int) -> pa.RecordBatch:
    arrays = [to_staging(batch.column(column.name), column.type, column.staging_type) for column in columns]
    own = [
        batch.column(LSN_COLUMN).cast(pa.binary()),
        batch.column(OPERATION_COLUMN),
        pa.repeat(pa.scalar(part, pa.int32()), batch.num_rows),
    ]
    lobs = [keep_column(column.name) for column in columns if column.is_lob]
    names = [*(column.name for column in columns), LSN_COLUMN, OPERATION_COLUMN, PART_COLUMN, *lobs]
    return pa.RecordBatch.from_arrays([*arrays, *own, *(batch.column(name) for name in lobs)], names=names)
