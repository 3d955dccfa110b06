"""The Spark data source ``sqlserver_cdc``: a table of a window plan as Arrow batches, in parts that run in parallel.

A window is cut at commit LSNs, so that no transaction is split; a first load at keys that the server chose. Each part
is one statement over one connection. The source's password is taken from the environment of the driver and travels
inside the pickled reader: as an option it would show in query plans.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

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
from floodmark.sources.cdc import statements
from floodmark.sources.cdc.chunk_bounds import read_chunk_bounds
from floodmark.sources.cdc.columns import TransportColumn, supported_columns, to_transport
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import connect
from floodmark.spark.error_transport import transported_errors
from floodmark.spark.net import drop_superseded_changes
from floodmark.spark.packing import PACKED_SCHEMA, pack, pack_chunk, pack_in_order

NAME = "sqlserver_cdc"
PLAN_OPTION = "plan"
INDEX_OPTION = "index"
PARTS_OPTION = "parts"
PACKED_OPTION = "packed"
CHUNKS_OPTION = "chunks"
SOURCE_VARIABLE = "FLOODMARK_SOURCE"

BATCH_ROWS = 8192
LOB_BATCH_ROWS = 256
"""A batch is held in memory whole, and one LOB may have megabytes."""


@dataclass(frozen=True)
class ChangesPart(InputPartition):  # type: ignore[misc]
    interval: Interval


@dataclass(frozen=True)
class ChunksPart(InputPartition):  # type: ignore[misc]
    """Chunks of the table, read one after the other."""

    chunks: tuple[LoadChunk, ...]


class SqlServerCdc(DataSource):  # type: ignore[misc]
    """Options: plan (JSON of a WindowPlan), index (of the table in it), parts (how many, if the plan leaves it open),
    chunks (JSON of those to be read of a first load; without them, all are).

    Columns: those of the change table that the kind of read needs (``statements.own_columns``), then the stored ones;
    with the option packed, those of ``packing.PACKED_SCHEMA``.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> spark.StructType | str:
        return PACKED_SCHEMA if self._is_packed() else spark_schema(self._plan())

    def reader(self, schema: spark.StructType) -> SqlServerReader:
        source = SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE])
        parts = int(self.options.get(PARTS_OPTION, "1"))
        chunks = [chunk_from_json(chunk) for chunk in json.loads(self.options.get(CHUNKS_OPTION, "[]"))]
        return SqlServerReader(self._plan(), source, parts, packed=self._is_packed(), chunks=chunks)

    def _plan(self) -> TablePlan:
        return plan_from_json(json.loads(self.options[PLAN_OPTION])).tables[int(self.options[INDEX_OPTION])]

    def _is_packed(self) -> bool:
        return bool(self.options.get(PACKED_OPTION, "false") == "true")


class SqlServerReader(DataSourceReader):  # type: ignore[misc]
    def __init__(
        self, plan: TablePlan, source: SqlServerConnection, parts: int, *, packed: bool = False,
        chunks: Sequence[LoadChunk] = (),
    ) -> None:  # fmt: skip
        self._plan = plan
        self._source = source
        self._parts = parts if plan.kind is LoadKind.FIRST_LOAD else plan.partitions or parts
        self._packed = packed
        self._chunks = chunks

    def partitions(self) -> Sequence[InputPartition]:
        with transported_errors():
            if self._plan.kind is LoadKind.FIRST_LOAD:
                chunks = self._chunks or plan_chunks(read_chunk_bounds(self._plan, self._source))
                self._chunks = ()  # each part has its own; the reader travels with every task
                return [ChunksPart(tuple(part)) for part in assign_chunks(chunks, self._parts)]
            return self._plan_intervals()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChunksPart):
            return self._read_chunks(partition)
        if not isinstance(partition, ChangesPart):
            raise FloodmarkBugError(str(self._plan.source), f"no such part: {partition}.")
        batches = self._read_rows(*self._select_changes(partition.interval))
        if not self._packed:
            return batches
        if self._plan.net is NetSource.SERVER:
            return pack_in_order(batches)
        return pack(batches, self._plan.instance.table.key, partial(drop_superseded_changes, plan=self._plan))

    def _read_chunks(self, part: ChunksPart) -> Iterator[pa.RecordBatch]:
        for chunk in part.chunks:
            batches = self._read_rows(*self._select_chunk(chunk))
            yield from pack_chunk(chunk.number, batches) if self._packed else batches

    def _read_rows(self, text: str, parameters: tuple[object, ...]) -> Iterator[pa.RecordBatch]:
        columns = supported_columns(self._plan.instance.table, self._plan.temporal)
        schema = arrow_schema(self._plan)
        with transported_errors(), connect(self._source, subject=str(self._plan.source)) as session:
            for batch in session.read_batches(str(self._plan.source), text, parameters, batch_rows(columns)):
                yield cast_batch(batch, schema, columns)

    def _select_chunk(self, chunk: LoadChunk) -> tuple[str, tuple[object, ...]]:
        text = statements.select_rows(self._plan, chunk.after is not None, chunk.to is not None)
        bounds = [statements.bound_parameters(bound) for bound in (chunk.after, chunk.to) if bound is not None]
        return text, tuple(value for bound in bounds for value in bound)

    def _select_changes(self, interval: Interval) -> tuple[str, tuple[object, ...]]:
        if self._plan.net is NetSource.SERVER:
            return statements.select_net_changes(self._plan), (interval.from_lsn.value, interval.to_lsn.value)
        return statements.select_changes(self._plan), (interval.after_lsn.value, interval.to_lsn.value)

    def _plan_intervals(self) -> list[ChangesPart]:
        interval = self._plan.interval
        if interval is None:
            raise FloodmarkBugError(str(self._plan.source), "a window of changes without an interval.")
        # The server's net changes hold for the window as a whole.
        if self._parts == 1 or self._plan.net is NetSource.SERVER:
            return [ChangesPart(interval)]
        parameters = (self._parts, interval.after_lsn.value, interval.to_lsn.value)
        with connect(self._source, subject=str(self._plan.source)) as session:
            cuts = [Lsn(bytes(row[0])) for row in session.fetch(statements.select_cuts(), parameters)]
        return [ChangesPart(part) for part in cut_interval(interval, cuts)]


def assign_chunks(chunks: Sequence[LoadChunk], partitions: int) -> list[list[LoadChunk]]:
    """In turn, so that all hands move through the table together. None is empty."""
    return [list(chunks[first::partitions]) for first in range(min(partitions, len(chunks)))]


def batch_rows(columns: Sequence[TransportColumn]) -> int:
    """How many rows to fetch at a time."""
    return LOB_BATCH_ROWS if any(column.is_lob for column in columns) else BATCH_ROWS


def cut_interval(interval: Interval, cuts: Sequence[Lsn]) -> list[Interval]:
    """``interval`` in parts that end at ``cuts`` (ascending, inside the interval) and at its own end."""
    inner = [cut for cut in cuts if interval.after_lsn < cut < interval.to_lsn]
    ends = [interval.after_lsn, *inner, interval.to_lsn]
    return [Interval(after, to) for after, to in pairwise(ends)]


def spark_schema(plan: TablePlan) -> spark.StructType:
    own = {"binary": spark.BinaryType(), "int": spark.IntegerType()}
    fields = [spark.StructField(name, own[statements.OWN_TYPES[name]]) for name in statements.own_columns(plan)]
    columns = supported_columns(plan.instance.table, plan.temporal)
    return spark.StructType([*fields, *(spark.StructField(column.name, column.spark_type) for column in columns)])


def arrow_schema(plan: TablePlan) -> pa.Schema:
    own = {"binary": pa.binary(), "int": pa.int32()}
    fields = [(name, own[statements.OWN_TYPES[name]]) for name in statements.own_columns(plan)]
    columns = supported_columns(plan.instance.table, plan.temporal)
    return pa.schema([*fields, *((column.name, column.arrow_type) for column in columns)])


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema, columns: tuple[TransportColumn, ...]) -> pa.RecordBatch:
    """To the declared types; the driver's own are wider (large_string, uint8, time64[ns]), and Spark refuses them."""
    own = len(schema) - len(columns)
    arrays = [batch.column(i).cast(schema.field(i).type) for i in range(own)]
    arrays += [
        to_transport(batch.column(own + i), column.type, schema.field(own + i).type) for i, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
