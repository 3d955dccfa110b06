"""EXEC and INSERT … EXEC as statements: evaluate the arguments, call, and put the results where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Command, ReturnStatus, StatementDone
from sqlserver_emulator.session import RpcArgument
from sqlserver_emulator.syntax import statements as nodes
from sqlserver_emulator.tsql.calls import Call, CallResult, Calls, parse_name
from sqlserver_emulator.tsql.dynamic_sql import DynamicSql
from sqlserver_emulator.tsql.runner import Runner
from sqlserver_emulator.tsql.sql_runner import SqlRunner
from sqlserver_emulator.tsql.state.captured_rows import CapturedRows
from sqlserver_emulator.tsql.state.scope import Outcome, Scope, SessionState, Steps
from sqlserver_emulator.tsql.user_types import TABLE
from sqlserver_emulator.types import INT, NVARCHAR_MAX, TsqlType


class Execution:
    """The handlers of EXEC and INSERT … EXEC."""

    def __init__(self, state: SessionState, runner: Runner, sql: SqlRunner, calls: Calls, dynamic: DynamicSql) -> None:
        self._state = state
        self._sql = sql
        self._calls = calls
        self._dynamic = dynamic
        runner.register(nodes.Execute, self._execute)
        runner.register(nodes.ExecuteText, self._execute_text)
        runner.register(nodes.InsertExecute, self._insert)

    def _execute(self, statement: nodes.Execute, scope: Scope) -> Steps:
        result = yield from self._call(statement, scope)
        # Only the client's own EXEC ends with a return status on the wire; a nested call's goes to its caller.
        if scope.depth == 0:
            yield ReturnStatus(result.status)
            yield StatementDone(Command.EXECUTE)
        return Outcome.NEXT

    def _execute_text(self, statement: nodes.ExecuteText, scope: Scope) -> Steps:
        yield from self._text(statement, scope)
        return Outcome.NEXT

    def _insert(self, statement: nodes.InsertExecute, scope: Scope) -> Steps:
        state = self._state
        # For the whole session: the procedure that is called may not contain another INSERT … EXEC either.
        if state.is_inserting:
            raise SqlServerError(8164, "An INSERT EXEC statement cannot be nested.")
        source = statement.source
        captured = CapturedRows()
        state.is_inserting = True
        try:
            call = self._call(source, scope) if isinstance(source, nodes.Execute) else self._text(source, scope)
            yield from captured.drain(call)
        finally:
            state.is_inserting = False
        insert = partial(self._sql.insert_rows, statement.insert, captured.columns, captured.rows)
        if state.engine.triggers.may_fire:
            count = yield from self._sql.triggers.around(insert, scope, statement.line)
        else:
            count = insert()
        state.system.set_row_count(count)
        yield from state.done(Command.INSERT, count)
        return Outcome.NEXT

    def _call(self, statement: nodes.Execute, scope: Scope) -> Call:
        name = statement.procedure
        if isinstance(name, str):
            value = scope.variables[name].value
            name = parse_name("" if value is None else str(value))
        # All arguments are evaluated before the call, in the caller's scope and database.
        arguments = [self._actual(argument, scope) for argument in statement.arguments]
        result = yield from self._calls.call(name, arguments, scope, statement.line)
        # Assigned before the return variable: a variable that is both ends with the return status.
        self._assign(statement.arguments, result, scope)
        if statement.return_variable:
            variable = scope.variables[statement.return_variable]
            value = result.value if result.is_function else result.status
            variable.value = None if value is None else self._state.engine.convert(value, variable.type)
        return result

    def _text(self, statement: nodes.ExecuteText, scope: Scope) -> Call:
        text = self._state.evaluate(statement.text, scope, NVARCHAR_MAX)
        return (yield from self._dynamic.run_text("" if text is None else str(text), scope, statement.line))

    def _actual(self, argument: nodes.Argument, scope: Scope) -> RpcArgument:
        expression = argument.value
        if expression is None:
            # The keyword DEFAULT. The type is never read, as the parameter's own default takes its place.
            return RpcArgument(argument.name, INT, None, default=True)
        variable = scope.variables.get(expression.variable)
        if variable is not None:
            return RpcArgument(argument.name, variable.type, variable.value, argument.output)
        if expression.literal is not None:
            return RpcArgument(argument.name, expression.literal.type, expression.literal.value)
        if expression.variable and (table := self._state.engine.table_variable(expression.variable)) is not None:
            return RpcArgument(argument.name, scope.table_types.get(expression.variable, TABLE), table)
        value = self._state.evaluate(expression, scope)
        return RpcArgument(argument.name, TsqlType("sql_variant"), value)

    def _assign(self, arguments: Sequence[nodes.Argument], result: CallResult, scope: Scope) -> None:
        for index, (_, value) in result.outputs.items():
            expression = arguments[index].value
            if expression is not None and arguments[index].output:
                variable = scope.variables[expression.variable]
                variable.value = None if value is None else self._state.engine.convert(value, variable.type)
