"""A session with the warehouse that sends and returns Arrow, by ADBC, in one transaction.

Binary COPY checks no types: the caller sends exactly the Arrow types of the table's columns. ADBC's low-level
interface is used because its DB-API module imports pandas, a second for each process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

import adbc_driver_manager as adbc
import adbc_driver_postgresql
import pyarrow as pa

from floodmark.core.errors import DataQualityError, FloodmarkError, WarehouseUnavailableError
from floodmark.core.schema import TableName
from floodmark.postgres.session import SESSION_SETTINGS, WarehouseConnection, by_sqlstate

_CHARACTER_NOT_IN_REPERTOIRE = "22021"
_TARGET_TABLE = "adbc.ingest.target_table"
_MODE = "adbc.ingest.mode"
_APPEND = "adbc.ingest.mode.append"


class ArrowSession:
    """A session for use in a ``with`` block, rolled back unless committed. It raises errors of core.errors."""

    def __init__(self, at: WarehouseConnection, subject: str) -> None:
        self._subject = subject
        with self._translated():
            self._connection = adbc.AdbcConnection(_databases.open(at.uri()))
            self._connection.set_autocommit(False)
        self.execute(SESSION_SETTINGS)

    def __enter__(self) -> ArrowSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._connection.close()

    def execute(self, sql: str) -> None:
        """Run a statement that returns no rows."""
        with self._translated(), adbc.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(sql)
            statement.execute_update()

    def fetch(self, sql: str) -> list[tuple[object, ...]]:
        """Run a query and return its rows."""
        with self._translated(), adbc.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(sql)
            handle, _ = statement.execute_query()
            table = pa.RecordBatchReader.from_stream(handle).read_all()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def copy(self, table: TableName, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """Append batches to a table whose columns have these names. Return the number of rows.

        An empty schema name means a temporary table. An error raised by ``batches`` is passed on unchanged.
        """
        source = _Guarded(batches)
        options = {_MODE: _APPEND, _TARGET_TABLE: table.name}
        if table.schema:
            options[adbc.StatementOptions.INGEST_TARGET_DB_SCHEMA.value] = table.schema
        else:
            options[adbc.StatementOptions.INGEST_TEMPORARY.value] = "true"
        try:
            with self._translated(), adbc.AdbcStatement(self._connection) as statement:
                statement.set_options(**options)
                statement.bind_stream(pa.RecordBatchReader.from_batches(schema, source))
                return int(statement.execute_update())
        except FloodmarkError:
            if source.error is not None:
                raise source.error from None
            raise

    def commit(self) -> None:
        """Commit what was written."""
        with self._translated():
            self._connection.commit()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except adbc.Error as error:
            raise _translate(error, self._subject) from None


class _Databases:
    """A cache that keeps the last ADBC database open. Connections are opened and closed per session.

    Opening a database reads PostgreSQL's whole catalogue of types; a worker that writes a dozen parts does so once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[str, int] | None = None
        self._database: adbc.AdbcDatabase | None = None

    def open(self, uri: str) -> adbc.AdbcDatabase:
        # A forked worker must not use the database of its parent process.
        key = (uri, os.getpid())
        with self._lock:
            if self._key != key:
                self._database, self._key = adbc_driver_postgresql.connect(uri), key
            return self._database


_databases = _Databases()


class _Guarded:
    """An iterable that keeps the error that ended the batches: Arrow's C interface reduces it to a text."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except GeneratorExit:  # the reader stopped because of an error of its own
            raise
        except BaseException as error:
            self.error = error
            raise


def _translate(error: adbc.Error, subject: str) -> FloodmarkError:
    if error.sqlstate == _CHARACTER_NOT_IN_REPERTOIRE:
        return DataQualityError(
            subject,
            "a text value is not valid in the encoding of the warehouse (22021).",
            "Correct the value at the source; the log of the load has the warehouse's message.",
            " ".join(str(error).split()),
        )
    if error.sqlstate is None:
        reason = " ".join(str(error).split()).rstrip(".")
        return WarehouseUnavailableError(
            subject, f"the warehouse is not available: {reason}.", "It is retried automatically."
        )
    return by_sqlstate(error.sqlstate, str(error), subject)
