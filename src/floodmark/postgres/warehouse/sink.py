"""``PostgresSink``: writes a worker's rows to the staging table by COPY, in one transaction per part.

Tries of a part of changes do not know of each other. The receipt of each is its transaction, which PostgreSQL keeps
with the rows (xmin), and the merge removes the rows of the others (``staging.keep_reported``). A chunk of a first load
and its state in the ledger are one transaction. A worker may outlive its driver, and a driver may be believed dead and
be alive: before it commits, a sink checks that its load is still the latest attempt at the window, and that the window
is not merged, and locks that answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from floodmark.core.errors import FloodmarkBugError, WatermarkConflictError
from floodmark.core.naming import (
    LSN_COLUMN,
    OPERATION_COLUMN,
    PART_COLUMN,
    UNSTORABLE_COLUMN,
    keep_column,
    optional_columns,
    quote_table,
)
from floodmark.core.schema import TableName
from floodmark.core.window.columns import ValueColumn, value_columns
from floodmark.core.window.plan import TablePlan, WindowPlan
from floodmark.postgres.connection import WarehouseConnection
from floodmark.postgres.ledger.loads import refuse_stale
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.arrow_session import ArrowSession
from floodmark.postgres.warehouse.staging_types import staging_type, to_staging
from floodmark.postgres.warehouse.unstorable import TextCheck
from floodmark.sync.ports.staging import StagedPart


@dataclass(frozen=True)
class PostgresSink:
    """``sync.ports.staging.StagingSink`` for the changes of a table."""

    table: TablePlan
    staging: TableName
    warehouse: WarehouseConnection
    window: WindowPlan
    """The plan of this attempt, without its tables."""
    # The statement travels with the sink: an executor may not have the files.
    fence_sql: str = field(default_factory=lambda: read_sql("fence_load"))

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        first = next(batches, None)
        if first is None:
            return StagedPart(part, 0)
        with ArrowSession(self.warehouse, str(self.table.source)) as session:
            _refuse_dropped(session, self.table, self.staging)
            staged = copy_part(session, self.table, self.staging, part, chain([first], batches))
            [[receipt]] = session.fetch("SELECT pg_current_xact_id()::xid::text AS receipt")
            _fence(session, self.fence_sql, self.table, self.window)
            session.commit()
        return StagedPart(part, staged, str(receipt))


@dataclass(frozen=True)
class PostgresChunkSink:
    """``sync.ports.staging.StagingSink`` for the chunks of a first load; a part is a chunk."""

    table: TablePlan
    staging: TableName
    warehouse: WarehouseConnection
    window: WindowPlan
    """The plan of this attempt, without its tables."""
    # The statements travel with the sink: an executor may not have the files.
    fence_sql: str = field(default_factory=lambda: read_sql("fence_load"))
    stage_sql: str = field(default_factory=lambda: read_sql("stage_load_chunk"))

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        with ArrowSession(self.warehouse, str(self.table.source)) as session:
            first = next(batches, None)
            staged = 0
            if first is not None:
                _refuse_dropped(session, self.table, self.staging)
                staged = copy_part(session, self.table, self.staging, part, chain([first], batches))
            if self._is_recorded(session, part, staged):
                session.commit()
        return StagedPart(part, staged)

    def _is_recorded(self, session: ArrowSession, part: int, rows: int) -> bool:
        """Return whether the chunk is recorded now; False when another task of this load has staged it already."""
        source, window = self.table.source, self.window
        _fence(session, self.fence_sql, self.table, window)
        values = {
            "window_id": int(window.window_id),
            "attempt": int(window.attempt),
            "chunk_no": int(part),
            "rows": int(rows),
            "source_schema": _literal(source.schema),
            "source_name": _literal(source.name),
        }
        return bool(session.fetch(self.stage_sql.format(**values)))


def copy_part(
    session: ArrowSession, table: TablePlan, staging: TableName, part: int, batches: Iterator[pa.RecordBatch]
) -> int:
    """Send the rows of a part to a staging table. Return their number."""
    columns = value_columns(table.feed.table, table.temporal)
    check = TextCheck(table, columns)
    numbered = (staging_batch(*check.apply(batch), columns, part) for batch in batches)
    return session.copy(staging, staging_schema(table, columns), numbered)


def staging_schema(table: TablePlan, columns: tuple[ValueColumn, ...]) -> pa.Schema:
    """Return the schema that COPY sends; the staging table has the same columns under the same names, in any order."""
    own = [(LSN_COLUMN, pa.binary()), (OPERATION_COLUMN, pa.int16()), (PART_COLUMN, pa.int32())]
    own.append((UNSTORABLE_COLUMN, pa.string()))
    keep = [(keep_column(name), pa.bool_()) for name in optional_columns(table.feed.table)]
    return pa.schema([*((column.name, staging_type(column.type)) for column in columns), *own, *keep])


def staging_batch(
    batch: pa.RecordBatch, notes: pa.Array, columns: tuple[ValueColumn, ...], part: int
) -> pa.RecordBatch:
    """Return a netted batch as COPY sends it. notes: of ``TextCheck``."""
    arrays = [to_staging(batch.column(column.name), column.type) for column in columns]
    own = [
        batch.column(LSN_COLUMN).cast(pa.binary()),
        batch.column(OPERATION_COLUMN),
        pa.repeat(pa.scalar(part, pa.int32()), batch.num_rows),
        notes,
    ]
    kept = [keep_column(column.name) for column in columns if column.is_optional]
    names = [*(column.name for column in columns), LSN_COLUMN, OPERATION_COLUMN, PART_COLUMN, UNSTORABLE_COLUMN, *kept]
    return pa.RecordBatch.from_arrays([*arrays, *own, *(batch.column(name) for name in kept)], names=names)


def _fence(session: ArrowSession, fence_sql: str, table: TablePlan, window: WindowPlan) -> None:
    """Raise WatermarkConflictError for an attempt that is over. The answer holds until the transaction ends.

    It is asked late, so that a try that hangs while it reads holds up no merge.
    """
    found = session.fetch(fence_sql.format(window_id=int(window.window_id)))
    if not found:
        raise FloodmarkBugError(str(table.source), f"window {window.window_id} no longer exists.")
    refuse_stale(window, int(str(found[0][0])), str(found[0][1]))


def _refuse_dropped(session: ArrowSession, table: TablePlan, staging: TableName) -> None:
    """Raise WatermarkConflictError where the staging table is gone: its attempt was overtaken, or its window ended."""
    found = session.fetch(f"SELECT to_regclass({_literal(quote_table(staging))}) IS NOT NULL AS found")
    if not found[0][0]:
        raise WatermarkConflictError(
            str(table.source),
            f"the staging table {staging} was dropped: another load of the window has begun, or has finished it.",
            "Nothing was written.",
        )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
