"""Running parsed statements: control flow, variables, TRY and CATCH, and what errors do.

A statement runs as a generator of events; its return value says how it leaves the statements around it. SQL proper is
left to ``sql_runner``, procedure calls to ``calls``, the single-statement verbs to ``verbs``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, cast

from sqlserver_emulator.contract import Variable
from sqlserver_emulator.errors import NotSupportedByEmulatorError, ReasonedError, SqlServerError
from sqlserver_emulator.events import Command, ErrorRaised, Event, Info, StatementDone
from sqlserver_emulator.syntax import statements as nodes
from sqlserver_emulator.syntax.parsing.batch import parse_batch
from sqlserver_emulator.syntax.statements import Batch, Statement
from sqlserver_emulator.tsql.faults import (
    TERMINATED,
    TERMINATED_TEXT,
    BatchEnd,
    Origin,
    RaisedError,
    ScopeEnd,
    ScopeError,
    Weight,
    is_terminating,
    nested_too_deeply,
    weigh,
)
from sqlserver_emulator.tsql.state.scope import Outcome, Scope, SessionState, Steps
from sqlserver_emulator.tsql.user_types import declare
from sqlserver_emulator.types import INT

Handler = Callable[[Statement, Scope], Steps]

_KEEPS_ERROR: Final = (
    nodes.Block,
    nodes.If,
    nodes.While,
    nodes.TryCatch,
    nodes.Execute,
    nodes.ExecuteText,
    nodes.RaiseError,
)
"""Statements that leave @@ERROR as the statements inside them (or they themselves) have set it."""

_CHANGES_ROWS: Final = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})

_CHANGETABLE: Final = re.compile(r"\bCHANGETABLE\s*\(", re.IGNORECASE)
_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
    "=": int.__eq__,
    "<>": int.__ne__,
    "!=": int.__ne__,
    "<": int.__lt__,
    "!>": int.__le__,
    "<=": int.__le__,
    ">": int.__gt__,
    "!<": int.__ge__,
    ">=": int.__ge__,
}


class Runner:
    """The runner of statements. What is not control flow is registered by the session's wiring."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._handlers: dict[type[Statement], Handler] = {}
        self.register(nodes.Block, self._block)
        self.register(nodes.If, self._if)
        self.register(nodes.While, self._while)
        self.register(nodes.Break, self._break)
        self.register(nodes.Continue, self._continue)
        self.register(nodes.TryCatch, self._try)
        self.register(nodes.Return, self._return)
        self.register(nodes.Declare, self._declare)
        self.register(nodes.DeclareTable, self._declare_table)
        self.register(nodes.SetVariable, self._set_variable)
        self.register(nodes.Assign, self._assign)
        self.register(nodes.NoEffect, self._no_effect)
        self.register(nodes.Unsupported, self._unsupported)

    def register(self, node: type[Statement], handler: Callable[..., Steps]) -> None:
        """Let ``handler`` run the statements of one kind."""
        self._handlers[node] = cast(Handler, handler)

    # -- scopes -----------------------------------------------------------------------------------------------------

    def run_text(self, text: str, scope: Scope, known: frozenset[str] = frozenset()) -> Iterator[Event]:
        """Parse and run a batch. Raises BatchEnd when the whole request has ended, RaisedError to an outer TRY."""
        try:
            try:
                batch = parse_batch(text, known)
                if _CHANGETABLE.search(text):
                    self._state.engine.check_batch(text)
            except SqlServerError as error:
                yield from self.fail(error, scope, error.line, Origin.COMPILATION)
                return
            except RecursionError:
                yield from self.fail(nested_too_deeply(), scope, 1, Origin.COMPILATION)
                return
        except ScopeEnd:
            return
        except ScopeError as scoped:
            raise RaisedError(scoped.error) from None
        yield from self.run_scope(batch, scope)

    def run_scope(self, batch: Batch, scope: Scope) -> Iterator[Event]:
        """Run a parsed batch in its scope. Raises as ``run_text``."""
        try:
            try:
                declare(self._state.engine, batch.declarations, scope)
            except SqlServerError as error:
                yield from self.fail(error, scope, 1, Origin.COMPILATION)
                return
            yield from self._run(batch.statements, scope)
        except ScopeEnd:
            return
        except ScopeError as scoped:
            raise RaisedError(scoped.error) from None
        finally:
            self._drop_tables(scope)

    def _drop_tables(self, scope: Scope) -> None:
        """Drop table variables, and #tables of a procedure, with their scope, unless a rollback has dropped them."""
        while scope.tables:
            with suppress(SqlServerError):  # after a cancel; the engine drops them with the session at the latest
                self._state.engine.execute(f"DROP TABLE IF EXISTS {scope.tables.pop()}", scope.variables)

    # -- statements -------------------------------------------------------------------------------------------------

    def _run(self, statements: Sequence[Statement], scope: Scope) -> Steps:
        for statement in statements:
            outcome = yield from self._run_one(statement, scope)
            if outcome is not Outcome.NEXT:
                return outcome
        return Outcome.NEXT

    def _run_one(self, statement: Statement, scope: Scope) -> Steps:
        state = self._state
        if state.cancelled.is_set():
            raise BatchEnd
        try:
            outcome = yield from self._handlers[type(statement)](statement, scope)
        except SqlServerError as error:
            changes_rows = isinstance(statement, nodes.Sql) and statement.verb in _CHANGES_ROWS
            yield from self.fail(error, scope, statement.line, changes_rows=changes_rows)
            return Outcome.NEXT
        except RecursionError:  # of the translator: nothing was sent to the engine
            yield from self.fail(nested_too_deeply(), scope, statement.line)
            return Outcome.NEXT
        if not isinstance(statement, _KEEPS_ERROR):
            state.system.error.value = 0
        return outcome

    def fail(
        self,
        error: SqlServerError,
        scope: Scope,
        line: int,
        origin: Origin = Origin.STATEMENT,
        *,
        changes_rows: bool = False,
    ) -> Iterator[Event]:
        """Let an error take effect: it goes to a CATCH, or is reported, and ends what it ends."""
        state = self._state
        self._locate(error, scope, line)
        if state.cancelled.is_set():
            raise BatchEnd
        # Before anything depends on @@TRANCOUNT: a deadlock has ended the transaction already.
        yield from state.transactions.notice_loss()
        weight = weigh(error, origin)
        # XACT_ABORT does not apply to RAISERROR, as Microsoft documents it, nor to errors of compilation.
        aborts = state.options.xact_abort and origin not in (Origin.RAISERROR, Origin.COMPILATION)
        dooms = aborts or (weight is Weight.BATCH and origin is Origin.STATEMENT)
        if weight is not Weight.REFUSAL and state.tries:
            if dooms:
                state.transactions.doom()
            if weight is not Weight.SCOPE:
                raise RaisedError(error)
            # A TRY in the same scope does not see such an error, one in a caller does (see `faults`).
            if state.tries > scope.tries:
                raise ScopeError(error)
        scope.worst_severity = max(scope.worst_severity, error.severity)
        # What is thrown again has had its reason.
        if isinstance(error, ReasonedError) and origin is Origin.STATEMENT:
            error.reason.line, error.reason.procedure = error.line, error.procedure
            yield ErrorRaised(error.reason)
        yield ErrorRaised(error)
        # Message 3621 says that the statement alone has ended, so not where more than it ends.
        if changes_rows and weight is Weight.STATEMENT and not aborts and is_terminating(error):
            yield Info(TERMINATED, TERMINATED_TEXT, state=0, procedure=error.procedure, line=error.line)
        yield StatementDone(failed=True)
        if dooms and state.transactions.count:
            yield from state.transactions.rollback()
        if aborts or weight in (Weight.BATCH, Weight.REFUSAL):
            raise BatchEnd
        if weight is Weight.SCOPE:
            raise ScopeEnd

    def _locate(self, error: SqlServerError, scope: Scope, line: int) -> None:
        if not error.line:
            error.line = line
            error.procedure = error.procedure or scope.procedure
        self._state.system.error.value = error.number
        self._state.system.set_row_count(0)

    # -- control flow -----------------------------------------------------------------------------------------------

    def _block(self, statement: nodes.Block, scope: Scope) -> Steps:
        return (yield from self._run(statement.statements, scope))

    def _if(self, statement: nodes.If, scope: Scope) -> Steps:
        if self._holds(statement.condition, scope):
            return (yield from self._run_one(statement.then, scope))
        if statement.otherwise is not None:
            return (yield from self._run_one(statement.otherwise, scope))
        return Outcome.NEXT

    def _while(self, statement: nodes.While, scope: Scope) -> Steps:
        while True:
            holds = self._holds(statement.condition, scope)
            # Each evaluation of the condition ends like a statement.
            yield from self._state.done()
            if not holds:
                break
            outcome = yield from self._run_one(statement.body, scope)
            if outcome is Outcome.BREAK:
                break
            if outcome is Outcome.RETURN:
                return outcome
        return Outcome.NEXT

    def _break(self, statement: nodes.Break, scope: Scope) -> Steps:
        yield from ()
        return Outcome.BREAK

    def _continue(self, statement: nodes.Continue, scope: Scope) -> Steps:
        yield from ()
        return Outcome.CONTINUE

    def _return(self, statement: nodes.Return, scope: Scope) -> Steps:
        yield from ()
        if statement.value is not None:
            value = self._state.evaluate(statement.value, scope, INT)
            scope.return_value = value if isinstance(value, int) else 0
        return Outcome.RETURN

    def _holds(self, condition: nodes.Condition, scope: Scope) -> bool:
        holds = self._compare(condition.comparison, scope) if condition.comparison else None
        if holds is None:
            holds = self._state.engine.evaluate_condition(condition.text, scope.variables)
        self._state.system.error.value = 0
        self._state.system.set_row_count(0)
        return holds

    def _compare(self, comparison: nodes.Comparison, scope: Scope) -> bool | None:
        """Return the result of comparing two integers; None when the engine has to decide."""
        # Loops count with such comparisons; the engine would be asked at each turn.
        left, right = (
            side if isinstance(side, int) else _integer_of(scope.variables.get(side))
            for side in (comparison.left, comparison.right)
        )
        if left is None or right is None:
            return None
        return _COMPARE[comparison.operator](left, right)

    def _try(self, statement: nodes.TryCatch, scope: Scope) -> Steps:
        state = self._state
        state.tries += 1
        scope.tries += 1
        try:
            return (yield from self._run(statement.body, scope))
        except RaisedError as raised:
            error = raised.error
        finally:
            state.tries -= 1
            scope.tries -= 1
        # CATCH blocks nest: at the end of an inner one ERROR_NUMBER() is the outer one's again.
        shown = state.caught_error
        state.show_error(error)
        try:
            return (yield from self._run(statement.handler, scope))
        finally:
            state.show_error(shown)

    # -- variables --------------------------------------------------------------------------------------------------

    def _declare(self, statement: nodes.Declare, scope: Scope) -> Steps:
        for declaration in statement.declarations:
            if declaration.default is not None:
                variable = scope.variables[declaration.name]
                variable.value = self._state.evaluate(declaration.default, scope, variable.type)
                self._state.system.set_row_count(1)
        yield from ()
        return Outcome.NEXT

    def _declare_table(self, statement: nodes.DeclareTable, scope: Scope) -> Steps:
        """Make the table once in a scope, also when the DECLARE is in a loop."""
        if statement.name not in scope.tables:
            self._state.engine.execute(statement.text, scope.variables)
            scope.tables.append(statement.name)
        yield from ()
        return Outcome.NEXT

    def _set_variable(self, statement: nodes.SetVariable, scope: Scope) -> Steps:
        variable = scope.variables[statement.name]
        variable.value = self._state.evaluate(statement.expression, scope, variable.type)
        self._state.system.set_row_count(1)
        yield from ()
        return Outcome.NEXT

    def _assign(self, statement: nodes.Assign, scope: Scope) -> Steps:
        """Assign from left to right, each seeing those before it; @@ROWCOUNT and @@ERROR as before the statement."""
        for assignment in statement.assignments:
            variable = scope.variables[assignment.name]
            variable.value = self._state.evaluate(assignment.expression, scope, variable.type)
        self._state.system.set_row_count(1)
        yield from self._state.done(Command.SELECT, 1)
        return Outcome.NEXT

    def _no_effect(self, statement: nodes.NoEffect, scope: Scope) -> Steps:
        yield from self._state.done()
        return Outcome.NEXT

    def _unsupported(self, statement: nodes.Unsupported, scope: Scope) -> Steps:
        yield from ()
        raise NotSupportedByEmulatorError(statement.what)


def _integer_of(variable: Variable | None) -> int | None:
    value = None if variable is None else variable.value
    return value if isinstance(value, int) else None
