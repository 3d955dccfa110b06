"""A client's session: ``session.Session`` on top of an ``EngineSession``.

Owns the edges of a request: what a batch, a procedure call or a transaction request starts, and what is put in order
when it ends. How statements run is ``runner``'s and its companions'.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from sqlserver_emulator.collations import Collation
from sqlserver_emulator.contract import EngineSession, ProcedureRegistry
from sqlserver_emulator.errors import ClientFaultError, SqlServerError, TableDataError
from sqlserver_emulator.events import ArrowBatch, ErrorRaised, Event, ReturnStatus, ReturnValue, StatementDone
from sqlserver_emulator.release import SQL_SERVER_2022, Release
from sqlserver_emulator.session import RpcArgument
from sqlserver_emulator.syntax import statements as nodes
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.tsql.bulk import BulkLoads
from sqlserver_emulator.tsql.calls import Calls, parse_name
from sqlserver_emulator.tsql.catalog.registry import LANGUAGE_PROCEDURES
from sqlserver_emulator.tsql.cursors.declared_cursors import Cursors
from sqlserver_emulator.tsql.cursors.server_cursors import ServerCursors
from sqlserver_emulator.tsql.dynamic_sql import DynamicSql
from sqlserver_emulator.tsql.execution import Execution
from sqlserver_emulator.tsql.faults import BatchEnd, InternalError, RaisedError, ScopeEnd, ScopeError
from sqlserver_emulator.tsql.runner import Runner
from sqlserver_emulator.tsql.sql_runner import SqlRunner
from sqlserver_emulator.tsql.state.scope import Scope, SessionState
from sqlserver_emulator.tsql.triggers import TriggerRunner
from sqlserver_emulator.tsql.verbs import Verbs
from sqlserver_emulator.types import TsqlType

_LOG = logging.getLogger(__name__)
# Exceptions that are no fault of the emulator: errors of a statement, control flow, a client that breaks off or left.
_EXPECTED = (SqlServerError, ScopeEnd, RaisedError, ScopeError, ClientFaultError, OSError)
# The numbers of a TDS transaction manager request.
_ISOLATION = {
    1: "READ UNCOMMITTED",
    2: "READ COMMITTED",
    3: "REPEATABLE READ",
    4: "SERIALIZABLE",
    5: "SNAPSHOT",
}
_CLASH = 206
"""Found before any row is inserted."""


class TsqlSession:
    """A session. ``procedures``: system procedures besides the catalog's (CDC). ``default_database``: for ``reset``."""

    def __init__(
        self,
        engine: EngineSession,
        *,
        session_id: int,
        procedures: ProcedureRegistry,
        default_database: str,
        release: Release = SQL_SERVER_2022,
    ) -> None:
        self._engine = engine
        self._default_database = default_database
        self._state = state = SessionState(engine, session_id, release)
        self._runner = runner = Runner(state)
        sql = SqlRunner(state)
        runner.register(nodes.Sql, sql.run)
        Verbs(state, runner)
        Cursors(state, runner)
        self._bulk = BulkLoads(state, runner)
        self._calls = Calls(state, runner, {**LANGUAGE_PROCEDURES, **procedures})
        sql.triggers = self._bulk.triggers = TriggerRunner(state, runner, self._calls)
        self._dynamic = DynamicSql(state, runner, self._calls)
        self._server_cursors = ServerCursors(state, runner, self._calls, self._dynamic)
        Execution(state, runner, sql, self._calls, self._dynamic)

    @property
    def database(self) -> str:
        return self._engine.database

    @property
    def collation(self) -> Collation:
        return self._engine.collation

    @property
    def login(self) -> str:
        return self._engine.login

    @property
    def session_id(self) -> int:
        return self._state.session_id

    @property
    def in_transaction(self) -> bool:
        return self._state.transactions.count > 0

    # -- requests: each clears the cancel flag when called, not when first iterated: a later cancel must not be lost ---

    def run_batch(self, text: str) -> Iterator[Event]:
        return self._request(self._runner.run_text(text, self._state.new_scope()))

    def run_procedure(self, name: str, arguments: Sequence[RpcArgument]) -> Iterator[Event]:
        return self._request(self._procedure(name, arguments))

    def load_bulk(self, types: Sequence[TsqlType], batches: Iterator[ArrowBatch]) -> Iterator[Event]:
        return self._request(self._bulk.load(types, batches))

    def begin_transaction(self, name: str = "", isolation: int = 0) -> Iterator[Event]:
        before = [nodes.SetIsolation(1, _ISOLATION[isolation])] if isolation in _ISOLATION else []
        return self._statements(*before, nodes.BeginTransaction(1, name))

    def commit_transaction(self, name: str = "") -> Iterator[Event]:
        return self._statements(nodes.CommitTransaction(1, name))

    def rollback_transaction(self, name: str = "") -> Iterator[Event]:
        return self._statements(nodes.RollbackTransaction(1, name))

    def save_transaction(self, name: str) -> Iterator[Event]:
        return self._statements(nodes.SaveTransaction(1, name))

    def cancel(self) -> None:
        self._state.cancelled.set()
        self._engine.cancel()

    def reset(self) -> Sequence[Event]:
        transactions = self._state.transactions
        ended = list(transactions.rollback()) if transactions.count else []
        self._engine.reset()
        self._engine.use(self._default_database)
        self._dynamic.handles.clear()
        self._server_cursors.forget()
        self._state.start_over()
        return ended

    def close(self) -> None:
        self._engine.close()

    def _statements(self, *statements: nodes.Statement) -> Iterator[Event]:
        return self._request(self._runner.run_scope(nodes.Batch(statements), self._state.new_scope()))

    def _request(self, events: Iterator[Event]) -> Iterator[Event]:
        self._state.cancelled.clear()
        return self._run_request(events)

    def _run_request(self, events: Iterator[Event]) -> Iterator[Event]:
        state = self._state
        try:
            yield from events
        except BatchEnd:
            if state.cancelled.is_set():
                return
        except _EXPECTED:
            raise
        except Exception as error:  # noqa: BLE001 - the edge: no statement may cost the client its connection
            yield from self._end_broken_request(error)
        # A doomed transaction may only be rolled back, and does not outlive its batch (error 3998).
        if state.transactions.is_doomed:
            yield from self._end_doomed_transaction()
        # Collected while a scope was left, where nothing could be yielded.
        while state.late_events:
            yield state.late_events.pop(0)

    def _end_broken_request(self, error: Exception) -> Iterator[Event]:
        """Report a fault of the emulator. How far its statement came is not known, so the transaction is undone."""
        _LOG.exception("session %d: internal error", self.session_id)
        yield ErrorRaised(InternalError(error))
        yield from self._state.transactions.notice_loss()
        if self._state.transactions.count:
            yield from self._state.transactions.rollback()
        yield StatementDone(failed=True)

    def _end_doomed_transaction(self) -> Iterator[Event]:
        text = "Uncommittable transaction is detected at the end of the batch. The transaction is rolled back."
        yield ErrorRaised(SqlServerError(3998, text, line=1))
        yield from self._state.transactions.rollback()
        yield StatementDone(failed=True)

    def _procedure(self, name: str, arguments: Sequence[RpcArgument]) -> Iterator[Event]:
        scope = self._state.new_scope()
        try:
            result = yield from self._calls.call(parse_name(name), arguments, scope, 1)
        except SqlServerError as error:
            yield from self._report(error, scope)
            return
        yield ReturnStatus(result.status)
        for index, (type, value) in sorted(result.outputs.items()):
            try:
                returned = self._returned(index, arguments[index], type, value)
            except SqlServerError as error:
                yield from self._report(error, scope)
                return
            yield returned

    def _returned(self, index: int, argument: RpcArgument, type: TsqlType, value: object) -> ReturnValue:
        """Return an OUTPUT parameter in the type that the client sent. Raises 8114 where its value does not fit."""
        wanted = argument.type
        # A client that sends a text of no length leaves the type to the procedure.
        if wanted == type or (BY_NAME[wanted.name].length is not None and not wanted.length):
            return ReturnValue(index, argument.name, type, value)
        if value is not None:
            try:
                value = self._engine.convert(value, wanted)
            except SqlServerError as error:
                message = f"Error converting data type {type.name} to {wanted.name}."
                raise SqlServerError(8114, message, state=5) from error
        return ReturnValue(index, argument.name, wanted, value)

    def _report(self, error: SqlServerError, scope: Scope) -> Iterator[Event]:
        """Report an error from before the procedure ran (no such procedure, wrong arguments)."""
        was_inserting = False
        if isinstance(error, TableDataError):
            was_inserting = error.reason.number != _CLASH
        try:
            yield from self._runner.fail(error, scope, 1, changes_rows=was_inserting)
        except ScopeEnd:
            return
