"""``CdcReader``: a table of a plan, read from its change table or, for a first load, from the table itself.

Each part is one statement over one connection. Before it, the connection proves that the copy of the database that
answers has the end of the window: readable copies lag, and an address may lead to any of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from floodmark.core.interval import Interval
from floodmark.core.job_variables import SOURCE_VARIABLE
from floodmark.core.policies import NetSource
from floodmark.core.source.history import LogEntry
from floodmark.core.window.chunks import Bound, LoadChunk
from floodmark.core.window.columns import ValueColumn, value_columns
from floodmark.core.window.plan import TablePlan
from floodmark.sources.cdc.rows import statements
from floodmark.sources.cdc.rows.chunk_bounds import find_double_key, read_chunk_bounds, refuse_null_keys
from floodmark.sources.cdc.rows.code_units import decode_units
from floodmark.sources.cdc.rows.columns import to_transport
from floodmark.sources.cdc.rows.feed import instance_of
from floodmark.sources.cdc.rows.long_values import refuse_long_values, split_batch
from floodmark.sources.cdc.rows.position import require_entry
from floodmark.sources.cdc.rows.server_net import require_server_net
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import SourceSession, connect
from floodmark.sync.ports.arrow import arrow_type
from floodmark.sync.ports.reader import RowShape

BATCH_ROWS = 8192
_NO_COMMAND_ID = (
    "the change table has no __$command_id; changes of one transaction are ordered by __$seqval, which is not always "
    "the order in which they happened"
)
_OWN_ARROW_TYPES = {"binary": pa.binary(), "int": pa.int32()}


def open_cdc_reader(plan: TablePlan, end: LogEntry) -> CdcReader:
    """Return the reader over the connection that the environment names."""
    return CdcReader(plan, SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE]), end)


@dataclass(frozen=True)
class CdcReader:
    """``sync.ports.reader.TableReader``."""

    plan: TablePlan
    source: SqlServerConnection
    end: LogEntry
    """The entry of the log that a copy of the database must have to be read."""

    @cached_property
    def shape(self) -> RowShape:
        table = self.plan.feed.table
        return RowShape(
            key=table.key,
            own=tuple((name, statements.OWN_TYPES[name]) for name in statements.own_columns(self.plan)),
            values=value_columns(table, self.plan.temporal),
            order=statements.order_columns(self.plan),
            position=statements.START_LSN,
            operation=statements.OPERATION,
            mask=statements.UPDATE_MASK,
            remark="" if instance_of(self.plan).has_command_id else _NO_COMMAND_ID,
        )

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        if self.plan.net is NetSource.SERVER:
            require_server_net(self.plan)
            text, first = statements.select_net_changes(self.plan), interval.from_lsn
        else:
            text, first = statements.select_changes(self.plan), interval.after_lsn
        return self._read(text, (first.value, interval.to_lsn.value))

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        text = statements.select_rows(self.plan, chunk.after is not None, chunk.to is not None)
        table = self.plan.feed.table
        bounds = [statements.bound_parameters(table, each) for each in (chunk.after, chunk.to) if each is not None]
        batches = self._read(text, tuple(value for bound in bounds for value in bound))
        return batches if bounds else refuse_null_keys(self.plan, batches)

    def read_chunk_bounds(self) -> Sequence[Bound]:
        return read_chunk_bounds(self.plan, self._connected)

    def find_double_key(self) -> tuple[Bound, int] | None:
        with self._connected() as session:
            return find_double_key(self.plan, session)

    @contextmanager
    def _connected(self) -> Iterator[SourceSession]:
        """Open a session with a copy of the database that has the end of the window."""
        subject = str(self.plan.source)
        with connect(self.source, subject=subject) as session:
            session.limit_lock_waits()
            require_entry(session, self.end, subject)
            yield session

    def _read(self, text: str, parameters: tuple[object, ...]) -> Iterator[pa.RecordBatch]:
        shape, subject = self.shape, str(self.plan.source)
        schema = arrow_schema(shape)
        with self._connected() as session:
            for found in session.read_batches(subject, text, parameters, BATCH_ROWS, batch_bytes(self.plan)):
                batch = decode_units(found, shape.values)
                refuse_long_values(batch, shape.values, subject)
                for piece in split_batch(batch):
                    yield cast_batch(piece, schema, shape.values)


def batch_bytes(plan: TablePlan) -> int:
    """Return the bytes at which a batch ends; 0 for rows without LOBs, which have a limited size."""
    return plan.lob_batch_bytes if any(column.is_lob for column in plan.feed.table.stored_columns) else 0


def arrow_schema(shape: RowShape) -> pa.Schema:
    """Return the schema of the batches of a shape."""
    own = [(name, _OWN_ARROW_TYPES[kind]) for name, kind in shape.own]
    return pa.schema([*own, *((column.name, arrow_type(column.type)) for column in shape.values)])


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema, columns: Sequence[ValueColumn]) -> pa.RecordBatch:
    """Cast to the declared types: the driver's are wider (large_string, uint8, time64[ns]), and Spark refuses them."""
    own = len(schema) - len(columns)
    arrays = [batch.column(i).cast(schema.field(i).type) for i in range(own)]
    arrays += [
        to_transport(batch.column(own + i), column.type, schema.field(own + i).type) for i, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
