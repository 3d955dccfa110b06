"""``SqlServerReader``: the rows of a table itself, and what each kind of source needs to read its changes.

Each part is one statement over one connection. Before it, the connection proves that the copy of the database that
answers has the end of the window: readable copies lag, and an address may lead to any of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from floodmark.core.source.history import LogEntry
from floodmark.core.window.chunks import Bound, LoadChunk
from floodmark.core.window.columns import ValueColumn
from floodmark.core.window.plan import TablePlan
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import SourceSession, connect
from floodmark.sources.sqlserver.rows import statements
from floodmark.sources.sqlserver.rows.chunk_bounds import find_double_key, read_chunk_bounds, refuse_null_keys
from floodmark.sources.sqlserver.rows.code_units import decode_units
from floodmark.sources.sqlserver.rows.columns import to_transport
from floodmark.sources.sqlserver.rows.long_values import refuse_long_values, split_batch
from floodmark.sync.ports.arrow import arrow_type
from floodmark.sync.ports.reader import RowShape

BATCH_ROWS = 8192
_OWN_ARROW_TYPES = {"binary": pa.binary(), "int": pa.int32()}


@dataclass(frozen=True)
class SqlServerReader(ABC):
    """``sync.ports.reader.SnapshotReader``, and the base of each kind's ``TableReader``."""

    plan: TablePlan
    source: SqlServerConnection
    end: LogEntry
    """The entry of the log that a copy of the database must have to be read."""

    @property
    @abstractmethod
    def shape(self) -> RowShape:
        """Return the columns of the batches."""

    @abstractmethod
    def require_end(self, session: SourceSession) -> None:
        """Raise SourceBehindError unless the copy of the database behind a session has the end of the window."""

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        text = statements.select_rows(self.plan, chunk.after is not None, chunk.to is not None)
        table = self.plan.feed.table
        bounds = [statements.bound_parameters(table, each) for each in (chunk.after, chunk.to) if each is not None]
        batches = self.read_text(text, tuple(value for bound in bounds for value in bound))
        return batches if bounds else refuse_null_keys(self.plan, batches)

    def read_chunk_bounds(self) -> Sequence[Bound]:
        return read_chunk_bounds(self.plan, self.connected)

    def find_double_key(self) -> tuple[Bound, int] | None:
        with self.connected() as session:
            return find_double_key(self.plan, session)

    @contextmanager
    def connected(self) -> Iterator[SourceSession]:
        """Open a session with a copy of the database that has the end of the window."""
        with connect(self.source, subject=str(self.plan.source)) as session:
            session.limit_lock_waits()
            self.require_end(session)
            yield session

    def read_text(self, text: str, parameters: tuple[object, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement as batches of the reader's shape, over a connection of its own."""
        with self.connected() as session:
            yield from self.read_over(session, text, parameters)

    def read_over(self, session: SourceSession, text: str, parameters: tuple[object, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement as batches of the reader's shape."""
        shape, subject = self.shape, str(self.plan.source)
        schema = arrow_schema(shape)
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
