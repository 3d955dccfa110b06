"""Procedures that run text: sp_executesql, and prepared statements by handle (sp_prepare, sp_execute, sp_prepexec…)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Final

from sqlserver_emulator.contract import Variable
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Column, Command, ResultStart, StatementDone
from sqlserver_emulator.session import RpcArgument, TableValue
from sqlserver_emulator.syntax.parsing.batch import parse_batch
from sqlserver_emulator.syntax.parsing.procedure import parse_parameters
from sqlserver_emulator.syntax.statements import Sql
from sqlserver_emulator.system_types import names_where
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.tsql.binding import Bound, Formal, bind, formals_of, leading, with_system_values
from sqlserver_emulator.tsql.calls import Call, CallResult, Calls, parse_name
from sqlserver_emulator.tsql.runner import Runner
from sqlserver_emulator.tsql.state.scope import Scope, SessionState
from sqlserver_emulator.tsql.user_types import enter_parameters, resolved, with_tables
from sqlserver_emulator.types import INT

# A sysname or xml is no text that sp_executesql takes.
_NATIONAL: Final = names_where(lambda type: type.wire.packing is Packing.UNICODE and not type.wire.announced_as)
_WANTS_COLUMNS: Final = 1
_EMPTY: Final = TableValue("", "", (), (), "", 0)


@dataclass(frozen=True, slots=True)
class Template:
    """A parameterised text, or (``is_procedure``) a procedure to call, with its formal parameters."""

    text: str
    formals: tuple[Formal, ...] = ()
    is_procedure: bool = False

    @property
    def known(self) -> frozenset[str]:
        """The variables that the text may use."""
        return frozenset(formal.name for formal in self.formals)


class DynamicSql:
    """The procedures that run text. ``handles`` live until sp_unprepare or the end of the session."""

    def __init__(self, state: SessionState, runner: Runner, calls: Calls) -> None:
        self._state = state
        self._runner = runner
        self._calls = calls
        self._numbers = count(1)
        self.handles: dict[int, Template] = {}
        calls.builtins |= {
            "sp_executesql": self._execute_sql,
            "sp_prepare": self._prepare,
            "sp_execute": self._execute,
            "sp_prepexec": self._prepare_and_execute,
            "sp_prepexecrpc": self._prepare_call,
            "sp_unprepare": self._unprepare,
        }

    def run_text(self, text: str, caller: Scope, line: int) -> Call:
        """Run the text of EXEC (N'…')."""
        scope = self._calls.inner_scope(caller.depth + 1)
        yield from self._calls.run_inner(self._runner.run_text(text, scope), caller, line)
        return CallResult()

    # -- the procedures ---------------------------------------------------------------------------------------------

    def _execute_sql(self, arguments: Sequence[RpcArgument]) -> Call:
        (text, parameters), taken = leading(("@stmt", "@params"), arguments)
        template = template_of("sp_executesql", text, parameters)
        return (yield from self.run(template, arguments, taken))

    def _prepare(self, arguments: Sequence[RpcArgument]) -> Call:
        (_, parameters, text, options), _ = leading(("@handle", "@params", "@stmt", "@options"), arguments)
        template = template_of("sp_prepare", text, parameters)
        batch = parse_batch(template.text, template.known)
        if options is not None and options.value == _WANTS_COLUMNS and len(batch.statements) == 1:
            statement = batch.statements[0]
            formals = resolved(self._state.engine, template.formals)
            columns = None
            if isinstance(statement, Sql) and statement.verb == "SELECT":
                columns = self._described(statement.text, formals)
            if columns is not None:
                yield ResultStart(columns)
                yield StatementDone(Command.SELECT)
        return CallResult(0, {0: (INT, self._keep(template))})

    def _described(self, text: str, formals: Sequence[Formal]) -> tuple[Column, ...] | None:
        engine = self._state.engine
        variables = self._state.new_scope().variables
        variables |= {formal.name: Variable(formal.type) for formal in formals if not formal.columns}
        with engine.inner_scope(), ExitStack() as tables:
            for formal in formals:
                if formal.columns:
                    tables.enter_context(engine.given_table(formal.name, formal.columns, _EMPTY))
            return engine.describe(text, variables)

    def _execute(self, arguments: Sequence[RpcArgument]) -> Call:
        (handle,), taken = leading(("@handle",), arguments)
        return (yield from self.run(self._find(handle), arguments, taken))

    def _prepare_and_execute(self, arguments: Sequence[RpcArgument]) -> Call:
        (handle, parameters, text), taken = leading(("@handle", "@params", "@stmt"), arguments)
        template = template_of("sp_prepexec", text, parameters)
        return (yield from self._run_and_keep(handle, template, arguments, taken))

    def _prepare_call(self, arguments: Sequence[RpcArgument]) -> Call:
        (handle, name), taken = leading(("@handle", "@rpcname"), arguments)
        template = Template("" if name is None else str(name.value), is_procedure=True)
        return (yield from self._run_and_keep(handle, template, arguments, taken))

    def _unprepare(self, arguments: Sequence[RpcArgument]) -> Call:
        (handle,), _ = leading(("@handle",), arguments)
        self._find(handle)
        if handle is not None:
            self.handles.pop(int(str(handle.value)))
        yield from ()
        return CallResult()

    # -- running ----------------------------------------------------------------------------------------------------

    def run(self, template: Template, arguments: Sequence[RpcArgument], taken: int) -> Call:
        """Run with the arguments after the first ``taken``; outputs count from the start of the whole list."""
        rest = arguments[taken:]
        # The builtins get no scope of their caller; @@NESTLEVEL has its depth.
        depth = int(str(self._state.system.nestlevel.value))
        caller = Scope({}, depth)
        if template.is_procedure:
            result = yield from self._calls.call(parse_name(template.text), rest, caller, 0)
            return CallResult(result.status, {index + taken: out for index, out in result.outputs.items()})
        scope, bound = self.bound_scope(template, rest)
        events = self._runner.run_text(template.text, scope, template.known)
        yield from self._calls.run_inner(with_tables(self._state.engine, bound, scope, events), caller, 0)
        status = self._state.system.error.value
        outputs = {index + taken: (formal.type, scope.variables[formal.name].value) for index, formal in bound.outputs}
        return CallResult(status if isinstance(status, int) else 0, outputs)

    def bound_scope(self, template: Template, arguments: Sequence[RpcArgument]) -> tuple[Scope, Bound]:
        """Return the scope in which a text runs, its parameters bound to these arguments."""
        _check_table_types(arguments)
        formals = with_system_values(resolved(self._state.engine, template.formals), self._state.system.all)
        try:
            bound = bind("sp_executesql", formals, arguments, self._state.engine.convert)
        except SqlServerError as error:
            raise _reworded(error, template) from error
        scope = self._calls.inner_scope(int(str(self._state.system.nestlevel.value)) + 1)
        enter_parameters(bound, scope)
        return scope, bound

    def _keep(self, template: Template) -> int:
        number = next(self._numbers)
        self.handles[number] = template
        return number

    def _run_and_keep(
        self, handle: RpcArgument | None, template: Template, arguments: Sequence[RpcArgument], taken: int
    ) -> Call:
        """Run, and give out a handle. A driver that prepares again passes the handle that it gives up."""
        if handle is not None and isinstance(handle.value, int):
            self.handles.pop(handle.value, None)
        number = self._keep(template)
        try:
            result = yield from self.run(template, arguments, taken)
        except BaseException:
            self.handles.pop(number, None)  # the client never learns of it
            raise
        # The handle is the first argument of every procedure that keeps a text.
        result.outputs[0] = (INT, number)
        return result

    def _find(self, handle: RpcArgument | None) -> Template:
        number = None if handle is None else handle.value
        template = self.handles.get(number) if isinstance(number, int) else None
        if template is None:
            raise SqlServerError(8179, f"Could not find prepared statement with handle {number or 0}.", state=2)
        return template


def template_of(procedure: str, text: RpcArgument | None, parameters: RpcArgument | None) -> Template:
    """Return the template of a text. Raises 201 for no text, 214 for a text that is not national."""
    if text is None:
        message = f"Procedure or function '{procedure}' expects parameter '@statement', which was not supplied."
        raise SqlServerError(201, message, state=10)
    if parameters is not None and _says_none(parameters):
        parameters = None
    for argument, name in ((text, "@statement"), (parameters, "@parameters")):
        if argument is not None and argument.value is not None and argument.type.name not in _NATIONAL:
            raise SqlServerError(214, f"Procedure expects parameter '{name}' of type 'ntext/nchar/nvarchar'.", state=2)
    declared = "" if parameters is None or parameters.value is None else str(parameters.value)
    return Template("" if text.value is None else str(text.value), formals_of(parse_parameters(declared)))


def _says_none(parameters: RpcArgument) -> bool:
    """Return whether it is tiberius' int 0 under a name without @, which no batch can write."""
    return parameters.value == 0 and parameters.type == INT and parameters.name[:1] not in ("", "@")


def _check_table_types(arguments: Sequence[RpcArgument]) -> None:
    """Raise 8058 or 8059 for a table without the name of its type, which only a procedure could complete."""
    for value in (argument.value for argument in arguments):
        if isinstance(value, TableValue) and not value.name:
            named = f'"{value.parameter}"' if value.parameter else str(value.ordinal)
            message = (
                "The incoming tabular data stream (TDS) remote procedure call (RPC) protocol stream is incorrect. "
                f"Table-valued parameter {named}, to a parameterized string has no table type defined."
            )
            raise SqlServerError(8059 if value.parameter else 8058, message)


def _reworded(error: SqlServerError, template: Template) -> SqlServerError:
    """Return the error of its own that a missing parameter of a text has."""
    if error.number != 201:
        return error
    declared = ",".join(f"{formal.shown} {formal.type}" for formal in template.formals)
    missing = error.message.partition("parameter '")[2].partition("'")[0]
    message = (
        f"The parameterized query '({declared}){template.text[:100]}' expects the parameter '{missing}', "
        "which was not supplied."
    )
    return SqlServerError(8178, message)
