"""``PostgresSink``: writes a worker's rows to the staging table by COPY, except texts that PostgreSQL cannot store."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from types import TracebackType
from typing import Any

import adbc_driver_manager as adbc
import adbc_driver_postgresql
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import (
    DataQualityError,
    FloodmarkBugError,
    FloodmarkError,
    WarehouseUnavailableError,
    WatermarkConflictError,
)
from floodmark.core.plan import TablePlan, ValueColumn, WindowPlan, value_columns
from floodmark.core.position import name_positions
from floodmark.core.schema import (
    CHANGED_COLUMN,
    COMMAND_COLUMN,
    COMMITTED_COLUMN,
    OLD_IMAGES,
    OPERATION_COLUMN,
    PART_COLUMN,
    POSITION_COLUMN,
    SEQUENCE_COLUMN,
    UNSTORABLE_COLUMN,
    TableName,
    keep_column,
    quote_table,
)
from floodmark.core.settings import UnstorablePolicy
from floodmark.core.types import Kind
from floodmark.postgres.ledger.steps import refuse_stale
from floodmark.postgres.session import SESSION_SETTINGS, WarehouseConnection, by_sqlstate
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.staging import kept_columns, staged_columns, staging_type, to_staging
from floodmark.sync.ports import StagedPart
from floodmark.sync.sessions import keep_or_close, take_kept

# --------------------------------------------------------------------------------------------------------------------
# Texts that PostgreSQL cannot store: with U+0000, with an unpaired surrogate, or of more than a gigabyte.
#
# They are found before COPY, which would refuse the whole part for one of them. Whole columns are checked by Arrow, and
# single values only where a column has such a text. Staging gets the text with U+FFFD in the place of what cannot be
# stored, and a note of the columns and reasons, by which the gate moves the row to quarantine.
#
# A delete is always applied: its last values are not merged as values of a living row. Only where its key cannot be
# stored it is dropped, since no target has such a key.


REPLACEMENT = "\ufffd"
MAX_TEXT_BYTES = 2**30 - 2**10
"""Less than PostgreSQL's limit for a value (1 GiB - 1), which includes its headers."""
_EXAMPLES = 3
_LAST_ASCII = 127
_Flags = npt.NDArray[np.bool_]
_Found = dict[int, dict[str, str]]
"""By row of a batch, the reason for each column."""


@dataclass(frozen=True, slots=True)
class TextCheck:
    """The check of the staged texts of one table."""

    table: TablePlan
    columns: tuple[ValueColumn, ...]

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Return a batch that can be stored, and for each row its note, NULL where it may be merged.

        Raises DataQualityError where the policy of the table is to fail.
        """
        storable, found = replace_unstorable(batch, self.columns)
        if not found:
            return storable, pa.nulls(batch.num_rows, pa.string())
        key, policy = set(self.table.in_target.key), self.table.settings.unstorable
        operations = batch.column(OPERATION_COLUMN)
        is_old = pc.is_in(operations, pa.array(OLD_IMAGES, operations.type)).to_pylist()
        if policy is UnstorablePolicy.FAIL and (living := [row for row in found if not is_old[row]]):
            raise self._refused(storable, {row: found[row] for row in living})
        notes: list[str | None] = [None] * batch.num_rows
        for row, reasons in found.items():
            in_key = not key.isdisjoint(reasons)
            if in_key or (policy is UnstorablePolicy.QUARANTINE and not is_old[row]):
                notes[row] = json.dumps(reasons)
        return storable, pa.array(notes, pa.string())

    def _refused(self, batch: pa.RecordBatch, found: _Found) -> DataQualityError:
        what = sorted({f"{column} ({reason})" for reasons in found.values() for column, reason in reasons.items()})
        at = pc.unique(batch.column(POSITION_COLUMN).take(list(found)))[:_EXAMPLES].to_pylist()
        return DataQualityError(
            str(self.table.source),
            f"texts cannot be stored in PostgreSQL: {', '.join(what)}.",
            "Correct the rows at the source, or choose another policy (unstorable in pipelines.yaml): the next run "
            "reads the rows again.",
            f"such as at {name_positions(at)}",
        )


def replace_unstorable(
    batch: pa.RecordBatch, columns: tuple[ValueColumn, ...]
) -> tuple[pa.RecordBatch, dict[int, dict[str, str]]]:
    """Return the batch with texts that can be stored, and for each changed row the reason by column."""
    found: _Found = {}
    for column in columns:
        if column.type.kind is not Kind.TEXT:
            continue
        texts = batch.column(column.name)
        suspects = np.flatnonzero(_find(texts))
        if len(suspects) == 0:
            continue
        values = texts.cast(pa.large_binary())
        replaced = []
        for row in suspects.tolist():
            text, reason = _storable(values[row].as_buffer())
            replaced.append(text)
            found.setdefault(row, {})[column.name] = reason
        mask = np.zeros(len(texts), dtype=np.bool_)
        mask[suspects] = True
        texts = pc.replace_with_mask(texts, pa.array(mask), pa.array(replaced, texts.type))
        batch = batch.set_column(batch.schema.get_field_index(column.name), column.name, texts)
    return batch, found


def _find(texts: pa.Array) -> _Flags:
    """Return for each text whether it cannot be stored."""
    octets = _octets(texts)
    flags = np.zeros(len(texts), dtype=np.bool_)
    if len(octets) > MAX_TEXT_BYTES:
        flags |= _true(pc.greater(pc.binary_length(texts), MAX_TEXT_BYTES))
    if np.count_nonzero(octets) < len(octets):
        flags |= _true(pc.match_substring(texts, "\0"))
    if len(octets) and np.max(octets) > _LAST_ASCII and not _is_unicode(texts):
        flags |= np.fromiter((not _is_unicode(texts.slice(row, 1)) for row in range(len(texts))), np.bool_, len(texts))
    return flags


def _octets(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of all texts of a column.

    To check them is ten times as fast as Arrow's kernels by text, on a million texts of fifty bytes without a fault.
    """
    _, offsets, data = texts.buffers()
    if len(texts) == 0 or data is None:
        return np.zeros(0, dtype=np.uint8)
    kind = np.dtype(np.int64 if pa.types.is_large_string(texts.type) else np.int32)
    first, last = np.frombuffer(offsets, kind)[[texts.offset, texts.offset + len(texts)]]
    return np.frombuffer(data, np.uint8)[first:last]


def _is_unicode(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _true(flags: pa.Array) -> _Flags:
    found: _Flags = pc.fill_null(flags, fill_value=False).to_numpy(zero_copy_only=False)
    return found


def _storable(value: Any) -> tuple[str, str]:
    """Return the text that is stored instead, and the reason."""
    if value.size > MAX_TEXT_BYTES:
        return REPLACEMENT, "more than 1 GB"
    raw = value.to_pybytes()
    try:
        text, reason = raw.decode(), "U+0000"
    except UnicodeDecodeError:
        text, reason = _without_surrogates(raw)
    return text.replace("\0", REPLACEMENT), reason


def _without_surrogates(raw: bytes) -> tuple[str, str]:
    try:
        text = raw.decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), "not Unicode"
    return "".join(REPLACEMENT if "\ud800" <= each <= "\udfff" else each for each in text), "an unpaired surrogate"


# --------------------------------------------------------------------------------------------------------------------
# ``PostgresSink``: writes a worker's rows to the staging table by COPY, in one transaction per part.
#
# Tries of a part of changes do not know of each other. The receipt of each is its transaction, which PostgreSQL keeps
# with the rows (xmin), and the merge removes the rows of the others (``staging.keep_reported``). A chunk of a first
# load and its state in the ledger are one transaction. A worker may outlive its driver, and a driver may be believed
# dead and be alive: before it commits, a sink checks that its load is still the latest attempt at the window, and that
# the window is not merged, and locks that answer.


@dataclass(frozen=True)
class PostgresSink:
    """``sync.ports.StagingSink`` for the changes of a table."""

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
    """``sync.ports.StagingSink`` for the chunks of a first load; a part is a chunk."""

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


_STYLE_TYPES = {
    COMMAND_COLUMN: pa.int32(),
    SEQUENCE_COLUMN: pa.binary(),
    CHANGED_COLUMN: pa.list_(pa.string()),
    COMMITTED_COLUMN: pa.timestamp("us", tz="UTC"),
}


def copy_part(
    session: ArrowSession, table: TablePlan, staging: TableName, part: int, batches: Iterator[pa.RecordBatch]
) -> int:
    """Send the rows of a part to a staging table. Return their number."""
    columns = value_columns(table.in_target, table.settings.temporal)
    check = TextCheck(table, columns)
    schema = staging_schema(table, columns)
    numbered = (staging_batch(*check.apply(batch), columns, part, schema) for batch in batches)
    return session.copy(staging, schema, numbered)


def staging_schema(table: TablePlan, columns: tuple[ValueColumn, ...]) -> pa.Schema:
    """Return the schema that COPY sends; the staging table has the same columns under the same names, in any order."""
    own = [(POSITION_COLUMN, pa.binary()), (OPERATION_COLUMN, pa.int16()), (PART_COLUMN, pa.int32())]
    own.append((UNSTORABLE_COLUMN, pa.string()))
    own += [(name, _STYLE_TYPES[name]) for name in staged_columns(table)]
    own += [(keep_column(name), pa.bool_()) for name in kept_columns(table)]
    return pa.schema([*((column.name, staging_type(column.type)) for column in columns), *own])


def staging_batch(
    batch: pa.RecordBatch, notes: pa.Array, columns: tuple[ValueColumn, ...], part: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Return a netted batch, or one of a log, as COPY sends it. notes: of ``TextCheck``. schema: that of COPY."""
    arrays = [to_staging(batch.column(column.name), column.type) for column in columns]
    own = [
        batch.column(POSITION_COLUMN).cast(pa.binary()),
        batch.column(OPERATION_COLUMN),
        pa.repeat(pa.scalar(part, pa.int32()), batch.num_rows),
        notes,
    ]
    others = (batch.column(name) for name in schema.names[len(arrays) + len(own) :])
    return pa.RecordBatch.from_arrays([*arrays, *own, *others], names=schema.names)


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


# --------------------------------------------------------------------------------------------------------------------
# ``ArrowSession``: a session with the warehouse that sends and returns Arrow, by ADBC, in one transaction.
#
# Binary COPY checks no types: the caller sends exactly the Arrow types of the table's columns. ADBC's low-level
# interface is used because its DB-API module imports pandas, a second for each process.


_CHARACTER_NOT_IN_REPERTOIRE = "22021"
_TARGET_TABLE = "adbc.ingest.target_table"
_MODE = "adbc.ingest.mode"
_APPEND = "adbc.ingest.mode.append"


class ArrowSession:
    """A session for use in a ``with`` block, rolled back unless committed. It raises errors of core.errors.

    After a commit as its last act it is kept, with its settings, where sessions are kept (``sync.sessions``).
    """

    def __init__(self, at: WarehouseConnection, subject: str) -> None:
        self._subject = subject
        self._uri = at.uri()
        self._is_committed = False
        kept = take_kept(adbc.AdbcConnection, self._uri)
        if kept is not None and _begins(kept):
            self._connection = kept
            return
        with self._translated():
            self._connection = _databases.connect(self._uri)
            _begin(self._connection)

    def __enter__(self) -> ArrowSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        is_idle = False
        with suppress(adbc.Error):
            if self._is_committed:
                self._connection.set_autocommit(True)  # a driver that does not commit has begun the next transaction
                is_idle = True
        keep_or_close(adbc.AdbcConnection, self._uri, self._connection, is_idle=is_idle)

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
        self._is_committed = True

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except adbc.Error as error:
            raise _translate(error, self._subject) from None


def _begin(connection: adbc.AdbcConnection) -> None:
    connection.set_autocommit(False)
    with adbc.AdbcStatement(connection) as statement:
        statement.set_sql_query(SESSION_SETTINGS)
        statement.execute_update()


def _begins(kept: adbc.AdbcConnection) -> bool:
    """Return whether a kept session begins a transaction. It is closed where its server has ended it meanwhile."""
    try:
        _begin(kept)
    except adbc.Error:
        kept.close()
        return False
    return True


_counting = threading.Lock()
"""The driver counts the connections of a database without a lock. A count that is too low fails every later close."""


class _Connection(adbc.AdbcConnection):  # type: ignore[misc]
    def close(self) -> None:
        with _counting:
            super().close()


class _Databases:
    """A cache that keeps the last ADBC database open. Connections are opened and closed per session.

    Opening a database reads PostgreSQL's whole catalogue of types; a worker that writes a dozen parts does so once.
    """

    def __init__(self) -> None:
        self._key: tuple[str, int] | None = None
        self._database: adbc.AdbcDatabase | None = None

    def connect(self, uri: str) -> _Connection:
        # A forked worker must not use the database of its parent process.
        key = (uri, os.getpid())
        with _counting:
            if self._key != key:
                self._database, self._key = adbc_driver_postgresql.connect(uri), key
            return _Connection(self._database)


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
            "Correct the value at the source.",
        )
    if error.sqlstate is None:
        reason = " ".join(str(error).split()).rstrip(".")
        return WarehouseUnavailableError(subject, f"the warehouse is not available: {reason}.")
    return by_sqlstate(error.sqlstate, str(error), subject)
