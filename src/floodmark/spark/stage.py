"""Staging: each Spark task nets the rows of its part and passes them to the warehouse's sink.

It runs in Spark's Python workers. The rows never pass through the driver, which gets one row of counts per part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from floodmark.core.lsn import Lsn
from floodmark.core.policies import NetSource
from floodmark.core.window.plan import LoadKind
from floodmark.spark.error_transport import transported_errors
from floodmark.spark.net import collapse_changes
from floodmark.spark.packing import Unpacked, unpack_chunks
from floodmark.spark.rows import adapt_net_changes, stamp_first_load
from floodmark.sync.ports.reader import RowShape
from floodmark.sync.ports.staging import StagedPart, StagingSink

COUNTS_SCHEMA = "part int, read_rows long, staged_rows long, receipt string"
_COUNTS = pa.schema(
    [("part", pa.int32()), ("read_rows", pa.int64()), ("staged_rows", pa.int64()), ("receipt", pa.string())]
)


@dataclass(frozen=True)
class StageWriter:
    """A writer of the parts of one table. It travels to the workers, with the warehouse's secrets in its sink."""

    shape: RowShape
    kind: LoadKind
    net: NetSource
    to_lsn: Lsn
    """The LSN of the rows of a first load."""
    sink: StagingSink

    def write_part(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the part of a task. For ``DataFrame.mapInArrow`` with ``COUNTS_SCHEMA``, over packed batches."""
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        with transported_errors():
            rows = Unpacked(batches)
            staged = self.sink.write(part, self.net_rows(rows))
        yield _counted(staged, rows.source_rows)

    def write_chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the chunks of a task, each as a part of its number. For ``mapInArrow``, over packed chunks."""
        with transported_errors():
            for chunk in unpack_chunks(batches):
                staged = self.sink.write(chunk.number, self.net_rows(chunk))
                yield _counted(staged, staged.rows)

    def net_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows to be staged: stored columns, ``__lsn``, ``__op``, keep flags."""
        if self.kind is LoadKind.FIRST_LOAD:
            return stamp_first_load(batches, self.shape, self.to_lsn)
        if self.net is NetSource.SERVER:
            return adapt_net_changes(batches, self.shape)
        return collapse_changes(batches, self.shape)


def _counted(staged: StagedPart, read_rows: int) -> pa.RecordBatch:
    row = {"part": staged.part, "read_rows": read_rows, "staged_rows": staged.rows, "receipt": staged.receipt}
    return pa.RecordBatch.from_pylist([row], schema=_COUNTS)
