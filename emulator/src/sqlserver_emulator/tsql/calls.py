"""Calling procedures: which one a name means, its arguments, its scope, its return status and OUTPUT values.

System procedures come from registries of Python functions; those that run text (sp_executesql…) from ``dynamic_sql``;
procedures created by users are T-SQL text that the engine keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, ProcedureRegistry, SystemProcedure, Variable
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Event
from sqlserver_emulator.session import RpcArgument
from sqlserver_emulator.syntax.known_names import PROCEDURES
from sqlserver_emulator.syntax.lexer import quote_identifier
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.execute import take_name
from sqlserver_emulator.syntax.parsing.modules import parse_procedure
from sqlserver_emulator.syntax.statements import Name
from sqlserver_emulator.tsql.binding import Bound, Formal, bind, formals_of, given_to, with_system_values
from sqlserver_emulator.tsql.faults import RaisedError
from sqlserver_emulator.tsql.runner import Runner
from sqlserver_emulator.tsql.state.scope import Scope, SessionState
from sqlserver_emulator.tsql.user_types import enter_parameters, resolved, with_table_types, with_tables
from sqlserver_emulator.types import TsqlType

# The limit that error 217 names.
_DEEPEST: Final = 32
_SYSTEM_SCHEMAS: Final = frozenset({"", "sys", "dbo"})


@dataclass(slots=True)
class CallResult:
    """``outputs``: by the argument's index, declared type and value. ``value``: of a function, in place of a status."""

    status: int = 0
    outputs: dict[int, tuple[TsqlType, object]] = field(default_factory=dict)
    is_function: bool = False
    value: object = None


Call = Generator[Event, None, CallResult]
Builtin = Callable[[Sequence[RpcArgument]], Call]
"""A procedure that belongs to the interpreter and takes its arguments as they come."""


class Calls:
    """The caller of procedures. ``builtins`` is filled by their owners (``dynamic_sql``)."""

    def __init__(self, state: SessionState, runner: Runner, procedures: ProcedureRegistry) -> None:
        self._state = state
        self._runner = runner
        self._procedures = procedures
        self.builtins: dict[str, Builtin] = {}

    def call(self, name: Name, arguments: Sequence[RpcArgument], caller: Scope, line: int) -> Call:
        """Call a procedure or function. Raises 2812 and the errors of binding; errors inside take effect there."""
        with self._in_database(name.database):
            arguments = with_table_types(self._state.engine, arguments)
            # System procedures are found first, so no procedure of a user can hide one.
            key, schema = name.name.lower(), name.schema.lower()
            if schema in _SYSTEM_SCHEMAS:
                builtin = self.builtins.get(key)
                if builtin is not None:
                    return (yield from builtin(arguments))
            system = self._procedures.get(key if schema in _SYSTEM_SCHEMAS else f"{schema}.{key}")
            if system is not None:
                return (yield from self._call_system(system, arguments, caller, line))
            return (yield from self._call_user(name, arguments, caller, line))

    @contextmanager
    def _in_database(self, database: str) -> Iterator[None]:
        engine = self._state.engine
        before = engine.database
        if not database or database.lower() == before.lower():
            yield
            return
        engine.use(database)
        try:
            yield
        finally:
            engine.use(before)

    def _call_system(
        self, procedure: SystemProcedure, arguments: Sequence[RpcArgument], caller: Scope, line: int
    ) -> Call:
        formals = tuple(Formal.of_system(parameter) for parameter in procedure.parameters)
        bound = bind(procedure.name, formals, arguments, self._state.engine.convert)
        in_transaction = self._state.transactions.count > 0
        call = ProcedureCall(self._state.engine, bound.values, in_transaction, self._run_for_procedure)
        try:
            yield from procedure.run(call)
        except SqlServerError as error:
            error.procedure = error.procedure or procedure.name
            error.line = error.line or 1
            yield from self._runner.fail(error, caller, line)
            return CallResult(call.return_code or 1)
        outputs = {name.lower(): value for name, value in call.outputs.items()}
        return CallResult(call.return_code, _outputs(bound, outputs))

    def _call_user(self, name: Name, arguments: Sequence[RpcArgument], caller: Scope, line: int) -> Call:
        engine = self._state.engine
        source = engine.user_procedure(engine.database, name.schema or "dbo", name.name)
        if source is None:
            parameters = engine.function_parameters(name.schema or "dbo", name.name)
            if parameters is not None:
                return CallResult(is_function=True, value=self._call_function(name, parameters, arguments))
            if name.schema.lower() in _SYSTEM_SCHEMAS and name.name.lower() in PROCEDURES:
                raise NotSupportedByEmulatorError(f"the procedure {name.name}")
            raise SqlServerError(2812, f"Could not find stored procedure '{name}'.", state=62)
        procedure = parse_procedure(source)
        formals = with_system_values(resolved(engine, formals_of(procedure.parameters)), self._state.system.all)
        bound = bind(name.name, formals, arguments, engine.convert)
        scope = self.inner_scope(caller.depth + 1, procedure=name.name)
        enter_parameters(bound, scope)
        events = with_tables(engine, bound, scope, self._runner.run_scope(procedure.body, scope))
        yield from self.run_inner(events, caller, line)
        values = {formal.name: scope.variables[formal.name].value for formal in formals if not formal.columns}
        return CallResult(scope.status, _outputs(bound, values))

    def _call_function(self, name: Name, parameters: Sequence[Parameter], arguments: Sequence[RpcArgument]) -> object:
        """Return the value of a scalar function that EXEC calls. Parameters that are not given have their default."""
        engine = self._state.engine
        formals = tuple(Formal.of_system(parameter) for parameter in parameters)
        bound = bind(name.name, formals, arguments, engine.convert)
        given = given_to(name.name, formals, arguments)
        has_value = {formal for formal, index in given.items() if not arguments[index].default}
        texts = [formal.name if formal.name in has_value else "DEFAULT" for formal in formals]
        variables = dict(self._state.system.all)
        variables |= {formal.name: Variable(formal.type, bound.values[formal.name]) for formal in formals}
        function = f"{quote_identifier(name.schema or 'dbo')}.{quote_identifier(name.name)}"
        return engine.evaluate(f"{function}({', '.join(texts)})", variables)

    def inner_scope(self, depth: int, *, procedure: str = "") -> Scope:
        """Return the scope of a procedure, trigger or dynamic batch. Raises 217 beyond the limit of nesting."""
        if depth > _DEEPEST:
            message = f"Maximum stored procedure, function, trigger, or view nesting level exceeded (limit {_DEEPEST})."
            raise SqlServerError(217, message)
        return self._state.new_scope(depth=depth, procedure=procedure)

    def run_inner(
        self, events: Iterator[Event], caller: Scope, line: int, *, keeps_count: bool = True
    ) -> Iterator[Event]:
        """Run an inner scope: options and database come back at its end.

        ``keeps_count``: @@TRANCOUNT must be as before (266).
        """
        state = self._state
        options, database, count = state.options.copy(), state.engine.database, state.transactions.count
        level = state.system.nestlevel
        before = level.value
        level.value = caller.depth + 1
        implicit = options.implicit_transactions
        try:
            with state.engine.inner_scope():
                yield from events
        finally:
            level.value = before
            # With implicit transactions a procedure may leave one open: that is no error 266.
            implicit = implicit or state.options.implicit_transactions
            # SET in a procedure or dynamic batch lasts until its end, and so does USE.
            state.apply_options(options)
            state.return_to(database)
        if keeps_count and state.transactions.count != count and not implicit:
            yield from self._runner.fail(_count_mismatch(count, state.transactions.count), caller, line)

    def _run_for_procedure(self, text: str) -> Iterator[Event]:
        """Run T-SQL on behalf of a procedure written in Python: errors come to it as exceptions."""
        state = self._state
        scope = self.inner_scope(int(str(state.system.nestlevel.value)) + 1)
        # Counts as a TRY around the text, so that errors are raised here instead of reported to the client.
        state.tries += 1
        try:
            yield from self._runner.run_text(text, scope)
        except RaisedError as raised:
            raise raised.error from None
        finally:
            state.tries -= 1


@lru_cache(512)
def parse_name(text: str) -> Name:
    """Return the name of a procedure from the text of a variable or an RPC. Raises 2812 for what is no name."""
    missing = SqlServerError(2812, f"Could not find stored procedure '{text}'.", state=62)
    try:
        cursor = Cursor(text)
        name = take_name(cursor)
    except SqlServerError:
        raise missing from None
    if not cursor.at_end:
        raise missing
    return name


def _outputs(bound: Bound, values: Mapping[str, object]) -> dict[int, tuple[TsqlType, object]]:
    return {index: (formal.type, values.get(formal.name)) for index, formal in bound.outputs}


def _count_mismatch(before: int, after: int) -> SqlServerError:
    message = (
        "Transaction count after EXECUTE indicates a mismatching number of BEGIN and COMMIT statements. "
        f"Previous count = {before}, current count = {after}."
    )
    return SqlServerError(266, message, state=2)
