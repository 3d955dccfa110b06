"""Running a statement for the engine: its result set as events, @@ROWCOUNT, assignment by SELECT, INSERT … EXEC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from sqlserver_emulator.contract import StatementResult, Variable
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Column, Command, Event, ResultStart, Rows, RowsArrow, StatementDone
from sqlserver_emulator.syntax.statements import Sql
from sqlserver_emulator.tsql.catalog import described_function
from sqlserver_emulator.tsql.faults import BatchEnd
from sqlserver_emulator.tsql.state.scope import Outcome, Scope, SessionState, Steps
from sqlserver_emulator.tsql.state.text_size import UNLIMITED, cut_texts
from sqlserver_emulator.tsql.state.transactions import doomed_error
from sqlserver_emulator.tsql.triggers import TriggerRunner

_STARTS_TRANSACTION: Final = frozenset(
    {"ALTER", "CREATE", "DELETE", "DENY", "DROP", "GRANT", "INSERT", "MERGE", "REVOKE", "TRUNCATE", "UPDATE"}
)
"""With IMPLICIT_TRANSACTIONS ON; SELECT only when it reads a table."""
_DML: Final = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
_VARIABLES_PER_INSERT: Final = 1000
_ROWS_PER_INSERT: Final = 100


class SqlRunner:
    """The runner of SQL proper. ``triggers``: given by the session's wiring, as it needs the runner."""

    triggers: TriggerRunner

    def __init__(self, state: SessionState) -> None:
        self._state = state

    def run(self, statement: Sql, scope: Scope) -> Steps:
        """Run a statement of the engine, with the triggers that it fires."""
        state = self._state
        if state.options.fmtonly:
            yield from self._describe(statement, scope)
            return Outcome.NEXT
        if state.options.implicit_transactions and state.transactions.count == 0 and _starts_transaction(statement):
            yield from state.transactions.begin()
        # Nothing may write to the log in a doomed transaction; reading is allowed (error 3930).
        if state.transactions.is_doomed and statement.verb not in ("SELECT", "SET"):
            raise doomed_error()
        limit = state.options.rowcount
        if limit and statement.verb in _DML:
            raise NotSupportedByEmulatorError(f"SET ROWCOUNT for {statement.verb}")
        if statement.verb in _DML and state.engine.triggers.may_fire:
            change = partial(state.engine.execute, statement.text, scope.variables)
            result = yield from self.triggers.around(change, scope, statement.line)
        else:
            result = self._execute(statement, scope)
        # A ##table lives with the session.
        if statement.temp_table and scope.depth and not statement.temp_table.startswith("##"):
            scope.tables.append(statement.temp_table)
        if result.columns is None:
            yield from self._finish(result, scope)
        else:
            yield from self._send(result.columns, result, limit)
        return Outcome.NEXT

    def _execute(self, statement: Sql, scope: Scope) -> StatementResult:
        engine = self._state.engine
        try:
            return engine.execute(statement.text, scope.variables)
        except SqlServerError as error:
            if not described_function.is_about(error):
                raise
        # Only now is the statement read a second time: statements without the function never pay for it.
        text = described_function.rewritten(
            statement.text, engine, lambda expression: engine.evaluate(expression, scope.variables)
        )
        return engine.execute(text, scope.variables)

    def _describe(self, statement: Sql, scope: Scope) -> Iterator[Event]:
        """Describe the columns of a query; under FMTONLY nothing runs."""
        columns = None
        if statement.verb == "SELECT":
            columns = self._state.engine.describe(statement.text, scope.variables)
        if columns is not None:
            yield ResultStart(columns)
            yield StatementDone(Command.SELECT)

    def _finish(self, result: StatementResult, scope: Scope) -> Iterator[StatementDone]:
        state = self._state
        count = result.row_count
        for name, value in result.assigned_variables.items():
            variable = scope.variables[name]
            variable.value = None if value is None else state.engine.convert(value, variable.type)
        state.system.set_row_count(count or 0)
        yield from state.done(result.command, count)

    def _send(self, columns: tuple[Column, ...], result: StatementResult, limit: int) -> Iterator[Event]:
        state = self._state
        yield ResultStart(columns)
        batches: Iterator[Rows | RowsArrow] = _first_rows(result.batches, limit) if limit else result.batches
        if 0 < state.options.textsize < UNLIMITED:
            batches = cut_texts(columns, batches, state.options.textsize)
        sent = 0
        try:
            for batch in batches:
                if state.cancelled.is_set():
                    raise BatchEnd
                if limit:
                    sent += _row_count(batch)
                yield batch
        except SqlServerError:
            # A result set that was begun has to end before the CATCH block sends more.
            if state.tries and not state.cancelled.is_set():
                yield StatementDone(result.command)
            raise
        count = sent if limit else result.row_count
        state.system.set_row_count(count or 0)
        yield StatementDone(result.command, None if state.options.nocount else count)

    def insert_rows(self, insert: str, columns: Sequence[Column], rows: Sequence[tuple[object, ...]]) -> int:
        """Insert the rows of INSERT … EXEC; ``insert`` is the statement up to its VALUES. Return their number."""
        engine = self._state.engine
        step = max(1, min(_ROWS_PER_INSERT, _VARIABLES_PER_INSERT // max(len(columns), 1)))
        base = dict(self._state.system.all)
        # Several INSERTs here are one statement for the client: all rows or none.
        with engine.atomic():
            for start in range(0, len(rows), step):
                chunk = rows[start : start + step]
                names = [[f"@__insert_exec_{r}_{c}" for c in range(len(columns))] for r in range(len(chunk))]
                for row, row_names in zip(chunk, names, strict=True):
                    for value, name, column in zip(row, row_names, columns, strict=True):
                        base[name] = Variable(column.type, value)
                values = ", ".join(f"({', '.join(row_names)})" for row_names in names)
                engine.execute(f"{insert} VALUES {values}", base)
        return len(rows)


def _starts_transaction(statement: Sql) -> bool:
    if statement.verb == "SELECT":
        return any(token.word == "FROM" for token in statement.tokens)
    return statement.verb in _STARTS_TRANSACTION


def _row_count(batch: Rows | RowsArrow) -> int:
    return len(batch.rows) if isinstance(batch, Rows) else batch.batch.num_rows


def _first_rows(batches: Iterator[Rows | RowsArrow], limit: int) -> Iterator[Rows | RowsArrow]:
    """Yield at most ``limit`` rows (SET ROWCOUNT)."""
    for batch in batches:
        size = _row_count(batch)
        if size >= limit:
            yield batch if size == limit else _cut(batch, limit)
            return
        limit -= size
        yield batch


def _cut(batch: Rows | RowsArrow, limit: int) -> Rows | RowsArrow:
    return Rows(batch.rows[:limit]) if isinstance(batch, Rows) else RowsArrow(batch.batch.slice(0, limit))
