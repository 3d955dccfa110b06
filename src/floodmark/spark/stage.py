"""Staging: each Spark task sends its batches to the warehouse by COPY, in one transaction of its own.

Runs in Spark's Python workers. The rows never pass through the driver; what comes back is one row of counts per task.
The low-level ADBC interface is used: its DB-API module imports pandas, a second for each worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import adbc_driver_manager as adbc
import adbc_driver_postgresql
import pyarrow as pa
from pyspark import TaskContext

from floodmark.core.errors import DataQualityError, FloodmarkError, WarehouseUnavailableError
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
from floodmark.core.schema import TableName
from floodmark.core.window import LoadKind, NetSource, TablePlan
from floodmark.postgres import by_sqlstate
from floodmark.spark.carried_errors import carried
from floodmark.spark.columns import CarriedColumn, carried_columns, to_staging
from floodmark.spark.net import collapse_changes
from floodmark.spark.rows import Batches, adapt_net_changes, stamp_first_load
from floodmark.warehouse.connection import WarehouseConnection

COUNTS_SCHEMA = "read_rows long, staged_rows long"
_COUNTS = pa.schema([("read_rows", pa.int64()), ("staged_rows", pa.int64())])
_CHARACTER_NOT_IN_REPERTOIRE = "22021"
_INGEST_APPEND = "adbc.ingest.mode.append"


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
        """For ``DataFrame.mapInArrow`` with ``COUNTS_SCHEMA``. The batches are those of ``sqlserver_cdc``."""
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        with carried():
            read = Counter(batches)
            staged = self.write(self.net_rows(read), part)
        yield pa.RecordBatch.from_arrays(
            [pa.array([read.rows], pa.int64()), pa.array([staged], pa.int64())], schema=_COUNTS
        )

    def net_rows(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The stored columns, ``__lsn``, ``__op`` and the keep flags, one row per key."""
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
        columns = carried_columns(self.plan.instance.table, self.plan.temporal)
        source = Guarded(prepend(first, rows), lambda batch: staging_batch(batch, columns, part))
        reader = pa.RecordBatchReader.from_batches(staging_schema(self.plan, columns), source)
        try:
            return self._copy(reader, part)
        except adbc.Error as error:
            raise source.error or translate(error, str(self.plan.source)) from None

    def _copy(self, reader: pa.RecordBatchReader, part: int) -> int:
        with (
            adbc_driver_postgresql.connect(self.warehouse.uri()) as database,
            adbc.AdbcConnection(database) as connection,
        ):
            connection.set_autocommit(False)
            with adbc.AdbcStatement(connection) as statement:
                statement.set_sql_query(
                    f"DELETE FROM {quote_table(self.staging)} WHERE {quote(PART_COLUMN)} = {part:d}"  # noqa: S608
                )
                statement.execute_update()
            with adbc.AdbcStatement(connection) as statement:
                statement.set_options(
                    **{
                        "adbc.ingest.mode": _INGEST_APPEND,
                        adbc.StatementOptions.INGEST_TARGET_DB_SCHEMA.value: self.staging.schema,
                        "adbc.ingest.target_table": self.staging.name,
                    }
                )
                statement.bind_stream(reader)
                rows = int(statement.execute_update())
            connection.commit()
        return rows


def staging_schema(plan: TablePlan, columns: tuple[CarriedColumn, ...]) -> pa.Schema:
    """What COPY sends; the staging table has the same columns under the same names, in any order."""
    own = [(LSN_COLUMN, pa.binary()), (OPERATION_COLUMN, pa.int16()), (PART_COLUMN, pa.int32())]
    keep = [(keep_column(name), pa.bool_()) for name in lob_columns(plan.instance.table)]
    return pa.schema([*((column.name, column.staging_type) for column in columns), *own, *keep])


def staging_batch(batch: pa.RecordBatch, columns: tuple[CarriedColumn, ...], part: int) -> pa.RecordBatch:
    arrays = [to_staging(batch.column(column.name), column.type, column.staging_type) for column in columns]
    own = [
        batch.column(LSN_COLUMN).cast(pa.binary()),
        batch.column(OPERATION_COLUMN),
        pa.repeat(pa.scalar(part, pa.int32()), batch.num_rows),
    ]
    lobs = [keep_column(column.name) for column in columns if column.is_lob]
    names = [*(column.name for column in columns), LSN_COLUMN, OPERATION_COLUMN, PART_COLUMN, *lobs]
    return pa.RecordBatch.from_arrays([*arrays, *own, *(batch.column(name) for name in lobs)], names=names)


def translate(error: adbc.Error, subject: str) -> FloodmarkError:
    """What an error of the warehouse's driver means to us."""
    if error.sqlstate == _CHARACTER_NOT_IN_REPERTOIRE:
        return DataQualityError(
            subject,
            "a text value holds the character U+0000, which PostgreSQL cannot store.",
            "Correct the value at the source.",
        )
    if error.sqlstate is None:
        return WarehouseUnavailableError(subject, f"the warehouse is not available: {error}.", "It is tried again.")
    return by_sqlstate(error.sqlstate, str(error), subject)


class Counter:
    """Hands on batches and counts their rows."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


class Guarded:
    """Maps batches, and keeps the error that ended them: crossing Arrow's C interface it would become a mere text."""

    def __init__(self, batches: Iterator[pa.RecordBatch], change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        self._batches = batches
        self._change = change
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                yield self._change(batch)
        except BaseException as error:
            self.error = error
            raise


def prepend(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
