"""The Spark data source ``sqlserver_cdc``: a table of a window plan as packed Arrow batches, in parallel parts.

A window is cut so that no transaction is split, a first load at keys that the server chose. The reader defines the
content of a part (``sync.ports.reader``). The source's password comes from the environment of the driver and travels
inside the pickled reader: as an option it would appear in query plans.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from floodmark.core.errors import FloodmarkBugError
from floodmark.core.interval import Interval
from floodmark.core.lsn import Lsn
from floodmark.core.policies import NetSource
from floodmark.core.window.chunks import LoadChunk, chunk_from_json, plan_chunks
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.core.window.plan_json import plan_from_json
from floodmark.spark.error_transport import transported_errors
from floodmark.spark.net import drop_superseded_changes
from floodmark.spark.packing import PACKED_SCHEMA, pack, pack_chunk, pack_in_order
from floodmark.sync.ports.reader import OpenReader, TableReader

NAME = "sqlserver_cdc"
PLAN_OPTION = "plan"
INDEX_OPTION = "index"
PARTS_OPTION = "parts"
INTERVALS_OPTION = "intervals"
CHUNKS_OPTION = "chunks"


@dataclass(frozen=True)
class ChangesPart(InputPartition):  # type: ignore[misc]
    """The changes of an interval."""

    interval: Interval


@dataclass(frozen=True)
class ChunksPart(InputPartition):  # type: ignore[misc]
    """Chunks of the table, read one after the other."""

    chunks: tuple[LoadChunk, ...]


class TableRows(DataSource):  # type: ignore[misc]
    """The rows of one table of a plan, in the columns of ``packing.PACKED_SCHEMA``.

    Options: plan (JSON of a WindowPlan), index (of the table in the plan), intervals (JSON of the parts of its changes,
    each as after_lsn and to_lsn; one part where the option is missing), parts (the number of those of a first load),
    chunks (JSON of the chunks of a first load to read; all where the option is missing).
    """

    open_reader: ClassVar[OpenReader]

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> spark.StructType | str:
        return PACKED_SCHEMA

    def reader(self, schema: spark.StructType) -> PackedReader:
        window = plan_from_json(json.loads(self.options[PLAN_OPTION]))
        plan = window.tables[int(self.options[INDEX_OPTION])]
        chunks = [chunk_from_json(chunk) for chunk in json.loads(self.options.get(CHUNKS_OPTION, "[]"))]
        parts = int(self.options.get(PARTS_OPTION, "1"))
        intervals = intervals_from_json(self.options.get(INTERVALS_OPTION, "[]"))
        return PackedReader(plan, type(self).open_reader(plan, window.end), parts, chunks, intervals)


def intervals_to_json(intervals: Sequence[Interval]) -> str:
    """Return the value of the option ``intervals``."""
    return json.dumps([[each.after_lsn.value.hex(), each.to_lsn.value.hex()] for each in intervals])


def intervals_from_json(text: str) -> list[Interval]:
    """Return the intervals of ``intervals_to_json``."""
    return [Interval(*(Lsn(bytes.fromhex(end)) for end in ends)) for ends in json.loads(text)]


def table_rows(open_reader: OpenReader) -> type[TableRows]:
    """Return the data source over a reader, to be registered with a Spark session."""
    return type("SourceRows", (TableRows,), {"open_reader": staticmethod(open_reader)})


class PackedReader(DataSourceReader):  # type: ignore[misc]
    """A reader of a table in parts that packs the rows."""

    def __init__(
        self,
        plan: TablePlan,
        reader: TableReader,
        parts: int,
        chunks: Sequence[LoadChunk] = (),
        intervals: Sequence[Interval] = (),
    ) -> None:
        self._plan = plan
        self._reader = reader
        self._parts = parts
        self._chunks = chunks
        self._intervals = intervals

    def partitions(self) -> Sequence[InputPartition]:
        with transported_errors():
            if self._plan.kind is LoadKind.FIRST_LOAD:
                chunks = self._chunks or plan_chunks(self._reader.read_chunk_bounds())
                self._chunks = ()  # each part has its chunks; the reader travels with every task
                return [ChunksPart(tuple(part)) for part in assign_chunks(chunks, self._parts)]
            if self._plan.interval is None:
                raise FloodmarkBugError(str(self._plan.source), "its plan of changes has no interval.")
            return [ChangesPart(interval) for interval in self._intervals or (self._plan.interval,)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with transported_errors():
            yield from self._packed(partition)

    def _packed(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChunksPart):
            for chunk in partition.chunks:
                yield from pack_chunk(chunk.number, self._reader.read_chunk(chunk))
        elif not isinstance(partition, ChangesPart):
            raise FloodmarkBugError(str(self._plan.source), f"unknown part: {partition}.")
        elif self._plan.net is NetSource.SERVER:
            yield from pack_in_order(self._reader.read(partition.interval))
        else:
            shape = self._reader.shape
            rows = self._reader.read(partition.interval)
            yield from pack(rows, shape.key, partial(drop_superseded_changes, shape=shape))


def assign_chunks(chunks: Sequence[LoadChunk], partitions: int) -> list[list[LoadChunk]]:
    """Assign chunks in turn, so that all partitions move through the table together. None is empty."""
    return [list(chunks[first::partitions]) for first in range(min(partitions, len(chunks)))]
