"""Results of queries: streamed row by row, or by Arrow where they are large, with their T-SQL types.

Owns the choice between the two ways. A result occupies the session's connection until it is read or given up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain

from psycopg.pq.abc import PGresult

from sqlserver_emulator.contract import StatementResult
from sqlserver_emulator.engine.access.session_access import SessionAccess
from sqlserver_emulator.engine.catalog import result_types
from sqlserver_emulator.engine.connection.reader import LARGE_ROWS, RowEstimates, estimated_rows, explain, fits_arrow
from sqlserver_emulator.engine.translation import Translated
from sqlserver_emulator.engine.values import bind
from sqlserver_emulator.engine.values.units import rows_of_units
from sqlserver_emulator.events import Column, Command, Rows, RowsArrow

_CHUNK_ROWS = 2000

ErrorScope = Callable[[str], AbstractContextManager[None]]
"""Makes PostgreSQL's errors SQL Server's; the argument is the statement's verb."""


class QueryResults:
    """The query results of one session. ``errors`` wraps reading that goes on after the statement returned."""

    def __init__(self, access: SessionAccess, errors: ErrorScope) -> None:
        self._access = access
        self._connection = access.connection
        self._errors = errors
        self._estimates = RowEstimates()
        self._open_result: Generator[object] | None = None

    def give_up(self) -> None:
        """End a result that was not read to its end."""
        pieces, self._open_result = self._open_result, None
        if pieces is not None:
            pieces.close()

    def select(self, translated: Translated, values: Sequence[object]) -> StatementResult:
        """Run a query that gives rows. Errors of its first rows are raised here, later ones from the batches."""
        # A statement that writes, or that reads what this transaction wrote, cannot run on the second connection.
        may_be_large = translated.read_only and self._connection.reads_what_others_read
        if may_be_large and self._estimate(translated, values) >= LARGE_ROWS:
            large = self._select_large(translated, values)
            if large is not None:
                return large
        pieces = self._connection.stream(translated.sql, bind.to_parameters(values), _CHUNK_ROWS, reads=True)
        first = next(pieces)
        # The estimate was too low: the statement is started again there, before the client got a row.
        if may_be_large and first.ntuples == _CHUNK_ROWS and self._connection.reads_what_others_read:
            pieces.close()
            # Later runs of the text then go there at once.
            self._estimates.note(translated.sql, LARGE_ROWS)
            large = self._select_large(translated, values)
            if large is not None:
                return large
            pieces = self._connection.stream(translated.sql, bind.to_parameters(values), _CHUNK_ROWS, reads=True)
            first = next(pieces)
        return self._small_result(translated, first, pieces)

    def _small_result(self, translated: Translated, first: PGresult, pieces: Generator[PGresult]) -> StatementResult:
        rest: Iterator[PGresult] = pieces
        # A catalog query on this connection has to wait for the stream's end, so the rest is read first.
        if self._needs_catalog(first):
            rest = iter(list(pieces))
        columns = self.columns(first, translated)
        lengths = {i: None if columns[i].type.is_max else columns[i].type.length for i in translated.unit_columns}
        unscaled = result_types.unscaled_columns(first, columns)
        # The largest scale is known only when all rows are.
        if unscaled:
            rows = [row for batch in self._row_batches(chain((first,), rest), lengths) for row in batch.rows]
            columns = result_types.with_scales(columns, unscaled, rows)
            return StatementResult(Command.SELECT, columns, iter([Rows(rows)]), row_count=len(rows))
        result = StatementResult(Command.SELECT, columns, row_count=0)
        self._open_result = pieces
        result.batches = self._batches(result, self._row_batches(chain((first,), rest), lengths))
        return result

    def _row_batches(self, pieces: Iterable[PGresult], lengths: Mapping[int, int | None]) -> Iterator[Rows]:
        for piece in pieces:
            if piece.ntuples:
                yield Rows(rows_of_units(self._access.rows(piece), lengths))

    def _batches(
        self, result: StatementResult, batches: Iterator[Rows] | Iterator[RowsArrow]
    ) -> Iterator[Rows | RowsArrow]:
        """The batches, counted, with PostgreSQL's errors made SQL Server's."""
        count = 0
        with self._errors("SELECT"):
            for batch in batches:
                count += len(batch.rows) if isinstance(batch, Rows) else batch.batch.num_rows
                result.row_count = count
                yield batch
        # Reset only at the normal end: a result that is given up resets it in ``give_up``.
        self._open_result = None

    def _estimate(self, translated: Translated, values: Sequence[object]) -> int:
        sql = translated.sql
        known = self._estimates.known(sql)
        if known is not None:
            return known
        # System views are small, and PostgreSQL plans what they stand for longer than it reads them.
        if " FROM " not in sql or translated.of_catalog:
            return 1
        (plan,) = self._access.rows(self._connection.run(explain(sql, values), reads=True))[0]
        rows = estimated_rows(plan)
        self._estimates.note(sql, rows)
        return rows

    def _select_large(self, translated: Translated, values: Sequence[object]) -> StatementResult | None:
        """None when a column has a type that Arrow batches do not carry."""
        described = self._connection.describe(translated.sql)
        columns = self.columns(described, translated)
        # A numeric without a known scale cannot be an Arrow decimal.
        if result_types.unscaled_columns(described, columns) or not fits_arrow(columns):
            return None
        result = StatementResult(Command.SELECT, columns, row_count=0)
        batches = self._access.arrow.read(translated.sql, values, columns, self._connection.context)
        self._open_result = batches
        result.batches = self._batches(result, batches)
        return result

    def columns(self, result: PGresult, translated: Translated) -> tuple[Column, ...]:
        return result_types.result_columns(result, translated, self._access.catalog, self._access.own_types)

    def _needs_catalog(self, result: PGresult) -> bool:
        """Whether typing the columns takes a query on this very connection, which the result still occupies."""
        tables = {result.ftable(i) for i in range(result.nfields)} - {0}
        return any(self._access.catalog.needs_reading(table) for table in tables)
