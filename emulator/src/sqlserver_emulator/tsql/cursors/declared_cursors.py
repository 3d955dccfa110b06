"""Cursors at run time. A cursor reads its whole result when it is opened, so it never sees later changes (STATIC).

Global cursors belong to the session, local ones to the scope that declared them.
"""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.contract import Variable
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Command, ResultStart, Rows, StatementDone
from sqlserver_emulator.syntax import statements as nodes
from sqlserver_emulator.tsql.runner import Runner
from sqlserver_emulator.tsql.state.captured_rows import CapturedRows
from sqlserver_emulator.tsql.state.opened_cursor import OpenedCursor
from sqlserver_emulator.tsql.state.scope import Outcome, Scope, SessionState, Steps
from sqlserver_emulator.types import BIGINT

_FETCHED: Final = 0
_BEYOND: Final = -1


class Cursors:
    """The handlers of DECLARE CURSOR, OPEN, FETCH, CLOSE and DEALLOCATE."""

    def __init__(self, state: SessionState, runner: Runner) -> None:
        self._state = state
        runner.register(nodes.DeclareCursor, self._declare)
        runner.register(nodes.OpenCursor, self._open)
        runner.register(nodes.FetchCursor, self._fetch)
        runner.register(nodes.CloseCursor, self._close)
        runner.register(nodes.AssignCursor, self._assign)
        runner.register(nodes.DeallocateCursor, self._deallocate)

    def _declare(self, statement: nodes.DeclareCursor, scope: Scope) -> Steps:
        """Declare a cursor. The query sees the values that variables have here, not those at OPEN."""
        home = scope.cursors if statement.is_local else self._state.cursors
        if statement.name in home and not statement.name.startswith("@"):
            raise SqlServerError(16915, f"A cursor with the name '{statement.name}' already exists.")
        values = {name: Variable(variable.type, variable.value) for name, variable in scope.variables.items()}
        home[statement.name] = OpenedCursor(statement.query, values, statement.scrolls)
        yield from self._state.done()
        return Outcome.NEXT

    def _open(self, statement: nodes.OpenCursor, scope: Scope) -> Steps:
        cursor = self._find(statement.name, scope)
        if cursor.captured is not None:
            raise SqlServerError(16905, "The cursor is already open.")
        result = self._state.engine.execute(cursor.query, cursor.variables)
        captured = CapturedRows()
        captured.read(result)
        cursor.captured, cursor.position = captured, 0
        self._state.system.cursor_rows.value = len(captured.rows)
        yield from self._state.done()
        return Outcome.NEXT

    def _fetch(self, statement: nodes.FetchCursor, scope: Scope) -> Steps:
        cursor = self._find(statement.name, scope)
        captured = cursor.captured
        if captured is None:
            raise SqlServerError(16917, "Cursor is not open.")
        if statement.direction != "NEXT" and not cursor.scrolls:
            message = f"fetch: The fetch type {statement.direction.lower()} cannot be used with forward only cursors."
            raise SqlServerError(16911, message)
        if statement.into and len(statement.into) != len(captured.columns):
            message = "Cursorfetch: The number of variables declared in the INTO list must match that of selected"
            raise SqlServerError(16924, f"{message} columns.")
        cursor.position = self._position(statement, cursor, len(captured.rows), scope)
        found = 1 <= cursor.position <= len(captured.rows)
        # Outside the result there is no row, and @@FETCH_STATUS says so: that is no error.
        rows = captured.rows[cursor.position - 1 : cursor.position] if found else []
        system = self._state.system
        if not statement.into:
            yield ResultStart(captured.columns)
            yield Rows(rows)
        for row in rows:
            for name, value in zip(statement.into, row, strict=False):
                variable = scope.variables[name]
                variable.value = None if value is None else self._state.engine.convert(value, variable.type)
        system.fetch_status.value = _FETCHED if found else _BEYOND
        system.set_row_count(len(rows))
        if statement.into:
            yield from self._state.done(Command.SELECT)
        else:
            yield StatementDone(Command.SELECT, None if self._state.options.nocount else len(rows))
        return Outcome.NEXT

    def _position(self, statement: nodes.FetchCursor, cursor: OpenedCursor, count: int, scope: Scope) -> int:
        wanted = 0
        if statement.count is not None:
            value = self._state.evaluate(statement.count, scope, BIGINT)
            wanted = value if isinstance(value, int) else 0
        match statement.direction:
            case "NEXT":
                position = cursor.position + 1
            case "PRIOR":
                position = cursor.position - 1
            case "FIRST":
                position = 1
            case "LAST":
                position = count
            case "ABSOLUTE":
                # A negative number counts from the last row.
                position = wanted if wanted >= 0 else count + 1 + wanted
            case _:
                position = cursor.position + wanted
        # Before the first row, or after the last: a fetch moves no further than one place outside.
        return max(0, min(position, count + 1))

    def _close(self, statement: nodes.CloseCursor, scope: Scope) -> Steps:
        cursor = self._find(statement.name, scope)
        if cursor.captured is None:
            raise SqlServerError(16917, "Cursor is not open.")
        cursor.captured = None
        yield from self._state.done()
        return Outcome.NEXT

    def _assign(self, statement: nodes.AssignCursor, scope: Scope) -> Steps:
        """Let the variable refer to the cursor itself: both have one position, and one closes it for the other."""
        scope.cursors[statement.variable] = self._find(statement.name, scope)
        yield from self._state.done()
        return Outcome.NEXT

    def _deallocate(self, statement: nodes.DeallocateCursor, scope: Scope) -> Steps:
        self._find(statement.name, scope)
        # A local cursor hides a global one of the same name, here as in `_find`.
        if scope.cursors.pop(statement.name, None) is None:
            del self._state.cursors[statement.name]
        yield from self._state.done()
        return Outcome.NEXT

    def _find(self, name: str, scope: Scope) -> OpenedCursor:
        """Return the cursor. Raises 16916, or 16950 for a variable that holds no cursor."""
        cursor = scope.cursors.get(name) or self._state.cursors.get(name)
        if cursor is not None:
            return cursor
        if name.startswith("@"):
            raise SqlServerError(16950, f"The variable '{name}' does not currently have a cursor allocated to it.")
        raise SqlServerError(16916, f"A cursor with the name '{name}' does not exist.")
