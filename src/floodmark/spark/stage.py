"""Staging: each Spark task nets the rows of its part and passes them to the warehouse's sink.

It runs in Spark's Python workers. The rows never pass through the driver, which gets one row of counts per part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from floodmark.core.interval import Interval
from floodmark.core.policies import NetSource
from floodmark.core.window.chunks import LoadChunk
from floodmark.core.window.members import MemberRead
from floodmark.core.window.plan import LoadKind
from floodmark.spark.error_transport import transported_errors
from floodmark.spark.net import collapse_changes
from floodmark.spark.packing import Unpacked, entries
from floodmark.spark.rows import adapt_net_changes, stamp_first_load
from floodmark.sync.ports.members import format_members, noted
from floodmark.sync.ports.reader import RowShape, TableReader
from floodmark.sync.ports.staging import StagedPart, StagingSink

COUNTS_SCHEMA = "part int, read_rows long, staged_rows long, receipt string, members string"
_COUNTS = pa.schema(
    [
        ("part", pa.int32()),
        ("read_rows", pa.int64()),
        ("staged_rows", pa.int64()),
        ("receipt", pa.string()),
        ("members", pa.string()),
    ]
)


@dataclass(frozen=True)
class StageWriter:
    """A writer of the parts of one table. It travels to the workers, with the warehouse's secrets in its sink."""

    shape: RowShape
    kind: LoadKind
    net: NetSource
    rows_at: bytes
    """The position of the rows of a first load."""
    sink: StagingSink

    def write_packed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the part of a task. For ``DataFrame.mapInArrow`` with ``COUNTS_SCHEMA``, over packed batches."""
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        with transported_errors():
            rows = Unpacked(entries(batches))
            staged = self.sink.write(part, self.net_rows(rows))
        yield _counted(staged, rows.source_rows, rows.members)

    def write_intervals(
        self, reader: TableReader, intervals: Sequence[tuple[int, Interval]]
    ) -> Iterator[pa.RecordBatch]:
        """Read and write changes that need not be brought together by key, each interval as the part of its number."""
        for number, interval in intervals:
            yield self._write_rows(number, reader.read(interval))

    def write_chunks(self, reader: TableReader, chunks: Sequence[LoadChunk]) -> Iterator[pa.RecordBatch]:
        """Read and write chunks of the table itself, each as the part of its number."""
        for chunk in chunks:
            yield self._write_rows(chunk.number, reader.read_chunk(chunk))

    def _write_rows(self, part: int, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        members: list[MemberRead] = []
        staged = self.sink.write(part, self.net_rows(batch for batch in noted(batches, members) if batch.num_rows))
        # Each row that was read is staged.
        return _counted(staged, staged.rows, members)

    def net_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows to be staged: stored columns, ``__lsn``, ``__op``, keep flags."""
        if self.kind is LoadKind.FIRST_LOAD:
            return stamp_first_load(batches, self.shape, self.rows_at)
        if self.net is NetSource.SERVER:
            return adapt_net_changes(batches, self.shape)
        return collapse_changes(batches, self.shape)


def _counted(staged: StagedPart, read_rows: int, members: Sequence[MemberRead] = ()) -> pa.RecordBatch:
    row = {
        "part": staged.part,
        "read_rows": read_rows,
        "staged_rows": staged.rows,
        "receipt": staged.receipt,
        "members": format_members(members),
    }
    return pa.RecordBatch.from_pylist([row], schema=_COUNTS)
