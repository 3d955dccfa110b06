"""One PostgreSQL connection driven through libpq: one round trip for a statement and whatever must go before it.

psycopg's cursors cost about three times the round trip itself, so statements go through its C wrapper of libpq.
Parameters are text, whose types PostgreSQL infers; results are binary. Statements used again are prepared.

Leaves transactions to ``transaction`` and the meaning of errors to ``errors_map``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen
from psycopg.pq.abc import PGresult
from psycopg.waiting import wait

from sqlserver_emulator.errors import NotSupportedByEmulatorError

Parameters = Sequence[bytes | None]
_T = TypeVar("_T")

_POLL_SECONDS = 0.1
"""How long to sleep for an answer before the connection is checked: psycopg's own default is not to sleep at all."""
# A statement that comes only once is not worth a PREPARE.
_PREPARE_AT_USE = 2
_PREPARED_MAX = 300
# Larger than the number of prepared ones: one-off texts pass through here and must not push out those that return.
_SEEN_MAX = 2000
# PostgreSQL has no SQLSTATE of its own for a stale plan, so the message text decides as well.
_NOT_SUPPORTED = "0A000"
_STALE_PLAN = "cached plan must not change result type"
_RESET = (
    "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all();"
    " DISCARD SEQUENCES"
)
"""DISCARD ALL without _DISCARD, and without DISCARD PLANS, after which the next session plans each statement of each
function once more."""
_DISCARD = "DEALLOCATE ALL; DISCARD TEMP"
_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED, pq.ExecStatus.BAD_RESPONSE)


class StatementFailedError(Exception):
    """PostgreSQL refused a statement; the fields of its error report."""

    def __init__(
        self,
        *,
        sqlstate: str,
        message: str,
        detail: str = "",
        schema: str = "",
        table: str = "",
        column: str = "",
        constraint: str = "",
        context: str = "",
    ) -> None:
        super().__init__(f"{sqlstate}: {message}")
        self.sqlstate = sqlstate
        self.message = message
        self.detail = detail
        self.schema = schema
        self.table = table
        self.column = column
        self.constraint = constraint
        self.context = context

    @property
    def is_stale_plan(self) -> bool:
        """DDL elsewhere changed the result type of a prepared statement; it did nothing, and runs once forgotten."""
        return self.sqlstate == _NOT_SUPPORTED and self.message == _STALE_PLAN


def _failure(result: PGresult) -> StatementFailedError:
    return StatementFailedError(
        sqlstate=_field(result, pq.DiagnosticField.SQLSTATE),
        message=_field(result, pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message.decode(errors="replace"),
        detail=_field(result, pq.DiagnosticField.MESSAGE_DETAIL),
        schema=_field(result, pq.DiagnosticField.SCHEMA_NAME),
        table=_field(result, pq.DiagnosticField.TABLE_NAME),
        column=_field(result, pq.DiagnosticField.COLUMN_NAME),
        constraint=_field(result, pq.DiagnosticField.CONSTRAINT_NAME),
        context=_field(result, pq.DiagnosticField.CONTEXT),
    )


def _field(result: PGresult, field: pq.DiagnosticField) -> str:
    return (result.error_field(field) or b"").decode(errors="replace")


def _encoded(sql: str) -> bytes:
    """libpq ends a statement at U+0000, which would leave a shorter one to run."""
    # A cut statement could still be valid SQL, e.g. an UPDATE without its WHERE.
    if "\0" in sql:
        raise NotSupportedByEmulatorError("the character U+0000 in names")
    return sql.encode()


class PipelinedConnection:
    """``before``: SQL without parameters, sent ahead of the statement in the same round trip (BEGIN, SAVEPOINT, …).

    Outside a transaction block everything in one round trip is one implicit transaction.
    """

    def __init__(self, conninfo: str) -> None:
        self.psycopg = psycopg.connect(conninfo, autocommit=True)
        self._pgconn = self.psycopg.pgconn
        # Made once: a cancel comes from another thread, which must not touch the connection itself.
        self._canceller = self._pgconn.get_cancel()
        self._busy = False
        self._busy_lock = threading.Lock()
        self._uses: OrderedDict[str, int] = OrderedDict()
        self._prepared: OrderedDict[str, bytes] = OrderedDict()
        self._prepared_count = 0
        self._to_forget: list[bytes] = []
        self._unconfirmed: list[str] = []
        """Prepared in the running round trip; not there if it fails."""
        self.remains: object | None = None
        """What a session that has ended says of its prepared statements and temporary tables, which are still there."""

    @property
    def backend_pid(self) -> int:
        return self._pgconn.backend_pid

    @property
    def is_broken(self) -> bool:
        return self._pgconn.status == pq.ConnStatus.BAD

    @property
    def transaction_status(self) -> int:
        return self._pgconn.transaction_status

    def run(self, sql: str, parameters: Parameters = (), before: Sequence[str] = ()) -> PGresult:
        """The whole result of one statement. Raises StatementFailedError."""
        self._send(sql, parameters, before)
        return self._last_result()

    def stream(self, sql: str, parameters: Parameters, before: Sequence[str], chunk_rows: int) -> Generator[PGresult]:
        """The result in pieces of at most ``chunk_rows`` rows, of which the last may be empty.

        The connection is busy until the iterator is exhausted or closed; closing early cancels the statement.
        """
        to_skip = self._send(sql, parameters, before)
        done = False
        try:
            for _ in range(to_skip):
                self._skip_command()
            # Only now: chunked mode applies to the current command, which is the statement after those that go before
            # it.
            self._pgconn.set_chunked_rows_mode(chunk_rows)
            while (result := self._fetch()) is not None:
                if result.status == pq.ExecStatus.TUPLES_CHUNK:
                    # A result of this status is a piece; the last one has another status, and is the only one that may
                    # be a failure.
                    yield result
                    continue
                done = True
                if result.status in _FAILED:
                    self._forget_unconfirmed()
                self._drain()
                yield self._checked(result)
                return
        finally:
            # The consumer closed the generator or failed: the server still sends rows, which have to be stopped and
            # read away.
            if not done:
                self._forget_unconfirmed()
                self.cancel()
                self._drain()

    def describe(self, sql: str, before: Sequence[str] = ()) -> PGresult:
        """The result columns of a statement, which is prepared but not run."""
        # Before pipeline mode is entered: an error raised inside it would leave the connection in that mode.
        _encoded(sql)
        self._pgconn.enter_pipeline_mode()
        for command in before:
            self._pgconn.send_query_params(_encoded(command), None)
        self._pgconn.send_describe_prepared(self._prepare(sql))
        self._flush()
        return self._last_result()

    def script(self, sql: str, before: Sequence[str] = ()) -> None:
        """Several statements without parameters or results that matter."""
        for text in (*before, sql):
            # The simple protocol: the extended one refuses several statements in one text.
            self._pgconn.send_query(_encoded(text))
            self._flush()
            self._last_result()

    def copy_in(self, sql: str, pieces: Iterator[bytes], before: Sequence[str] = ()) -> PGresult:
        """COPY … FROM STDIN with the bytes of ``pieces``; what they raise ends the COPY, of which nothing stays."""
        # COPY is not allowed in pipeline mode, so these take a round trip each.
        for command in before:
            self.run(command)
        self._pgconn.send_query(sql.encode())
        self._flush()
        started = self._fetch()
        if started is None or started.status != pq.ExecStatus.COPY_IN:
            # COPY was refused before it began; what remains of the answer has to be read before the next statement.
            self._drain()
            raise self._lost() if started is None else _failure(started)
        try:
            for piece in pieces:
                self._wait(generators.copy_to(self._pgconn, piece))
        except BaseException:
            # PostgreSQL fails the COPY with this text, so none of its rows stays.
            self._end_copy(b"given up")
            self._drain()
            raise
        self._end_copy(None)
        return self._last_result()

    def _end_copy(self, error: bytes | None) -> None:
        self._pgconn.put_copy_end(error)
        self._wait(generators.send(self._pgconn))

    def forget_prepared(self) -> None:
        """Prepared statements are of no use after DDL: PostgreSQL refuses a plan whose result type changed."""
        # They are closed with the next statement's round trip: closing them here would cost one of its own.
        self._to_forget += self._prepared.values()
        self._prepared.clear()
        self._uses.clear()

    def cancel(self) -> None:
        """End the running statement, if there is one; from any thread."""
        # The lock keeps ``_drain`` from ending the statement meanwhile: the cancel would hit the next one.
        with self._busy_lock:
            if self._busy:
                self._canceller.cancel()

    def answers(self) -> bool:
        """Return whether the process of an idle connection is still there."""
        try:
            self.script("SELECT 1")
        except (StatementFailedError, psycopg.Error):
            return False
        return True

    def reset(self, *statements: str) -> bool:
        """Make the connection as good as new but for what ``remains``, and run statements. Return False for one that is
        of no use any more."""
        pgconn = self._pgconn
        if self._busy or pgconn.status != pq.ConnStatus.OK or pgconn.pipeline_status:
            return False
        in_transaction = pgconn.transaction_status != pq.TransactionStatus.IDLE
        try:
            for statement in ("ROLLBACK",) * in_transaction + (_RESET, *statements):
                self.script(statement)
            if self.remains is None:
                self.discard()
        except (StatementFailedError, psycopg.Error):
            return False
        self._unconfirmed.clear()
        return True

    def discard(self) -> None:
        """Drop all prepared statements and temporary tables, outside of a transaction."""
        self.script(_DISCARD)
        for known in (self._uses, self._prepared, self._to_forget):
            known.clear()

    def close(self) -> None:
        self.psycopg.close()

    # -- sending ----------------------------------------------------------------------------------------------------

    def _send(self, sql: str, parameters: Parameters, before: Sequence[str]) -> int:
        """Send everything; returns how many commands' results come before the statement's own."""
        pgconn = self._pgconn
        # Encoded before anything is sent: a refused text must not leave half a pipeline behind.
        encoded, ahead = _encoded(sql), [_encoded(command) for command in before]
        prepared = self._prepared.get(sql)
        prepare = prepared is None and self._used_often(sql)
        commands = len(before) + len(self._to_forget) + prepare
        # Without anything ahead, a plain query saves the pipeline's sync message.
        if commands:
            pgconn.enter_pipeline_mode()
            self._send_forgotten()
            for command in ahead:
                pgconn.send_query_params(command, None)
        if prepare:
            prepared = self._prepare(sql)
        if prepared is None:
            pgconn.send_query_params(encoded, parameters, result_format=pq.Format.BINARY)
        else:
            pgconn.send_query_prepared(prepared, parameters, result_format=pq.Format.BINARY)
        self._flush()
        return commands

    def _used_often(self, sql: str) -> bool:
        uses = self._uses.pop(sql, 0) + 1
        if uses >= _PREPARE_AT_USE:
            return True
        self._uses[sql] = uses
        if len(self._uses) > _SEEN_MAX:
            self._uses.popitem(last=False)
        return False

    def _prepare(self, sql: str) -> bytes:
        """In a pipeline: send PREPARE unless done."""
        if (known := self._prepared.get(sql)) is not None:
            return known
        self._prepared_count += 1
        name = b"s%d" % self._prepared_count
        # Closing goes by name: names are counted, never used again, so a late close cannot meet a newer statement.
        self._pgconn.send_prepare(name, _encoded(sql))
        self._prepared[sql] = name
        self._unconfirmed.append(sql)
        if len(self._prepared) > _PREPARED_MAX:
            # The oldest prepared one; it is closed at the next round trip.
            self._to_forget.append(self._prepared.popitem(last=False)[1])
        return name

    def _send_forgotten(self) -> None:
        for name in self._to_forget:
            self._pgconn.send_close_prepared(name)
        self._to_forget.clear()

    def _forget_unconfirmed(self) -> None:
        # A PREPARE in a failed pipeline was rolled back or never run; using its name would be an error.
        for sql in self._unconfirmed:
            self._prepared.pop(sql, None)

    def _flush(self) -> None:
        if self._pgconn.pipeline_status:
            self._pgconn.pipeline_sync()
        # Set before the send: a cancel that comes while the statement travels must not be lost.
        with self._busy_lock:
            self._busy = True
        self._wait(generators.send(self._pgconn))

    def _wait(self, generator: PQGen[_T]) -> _T:
        value: _T = wait(generator, self._pgconn.socket, interval=_POLL_SECONDS)
        return value

    # -- receiving --------------------------------------------------------------------------------------------------

    def _fetch(self) -> PGresult | None:
        fetched: PGresult | None = self._wait(generators.fetch(self._pgconn))
        return fetched

    def _skip_command(self) -> None:
        """Read the result of a command that goes before, to its end. Raises StatementFailedError."""
        while (result := self._fetch()) is not None:
            self._checked(result)

    def _last_result(self) -> PGresult:
        """Read everything; the statement's own result is the last one. Raises the first failure."""
        # After the first failure the others only report that the pipeline was aborted.
        failed: PGresult | None = None
        last: PGresult | None = None
        for result in self._drain():
            if result.status in _FAILED:
                failed = failed or result
            last = result
        if failed is not None:
            self._checked(failed)
        if last is None:
            raise self._lost()
        return last

    def _lost(self) -> StatementFailedError:
        return StatementFailedError(sqlstate="08006", message="the connection to PostgreSQL was lost")

    def _drain(self) -> list[PGresult]:
        """Read what is left of the round trip, and leave the pipeline."""
        results: list[PGresult] = []
        in_pipeline = bool(self._pgconn.pipeline_status)
        ended = False
        # A pipeline ends with its sync result; results of earlier commands are each followed by None.
        while not ended:
            while (result := self._fetch()) is not None:
                if result.status == pq.ExecStatus.PIPELINE_SYNC:
                    ended = True
                    break
                results.append(result)
            ended = ended or not in_pipeline
        if in_pipeline:
            self._pgconn.exit_pipeline_mode()
        if any(result.status in _FAILED for result in results):
            # One failure aborts the rest of the pipeline, its PREPAREs included.
            self._forget_unconfirmed()
        self._unconfirmed.clear()
        with self._busy_lock:
            self._busy = False
        return results

    def _checked(self, result: PGresult) -> PGresult:
        if result.status in _FAILED:
            raise _failure(result)
        return result
