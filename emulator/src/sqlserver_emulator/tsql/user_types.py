"""Types that users made, of variables and parameters: alias types stand for a system type, table types for a table.

The parser does not know the catalog and leaves their names in place of types; here they are resolved when a scope or a
call begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from sqlserver_emulator.contract import DeclaredType, EngineSession, Variable
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Event
from sqlserver_emulator.session import RpcArgument, TableValue
from sqlserver_emulator.syntax.known_names import TYPES
from sqlserver_emulator.syntax.parsing.data_types import is_user_made, unknown_type
from sqlserver_emulator.syntax.statements import Declaration
from sqlserver_emulator.tsql.binding import Bound, Formal
from sqlserver_emulator.tsql.state.scope import Scope
from sqlserver_emulator.types import TsqlType

TABLE: Final = TsqlType("table")
"""The type of a table variable that was declared with its columns."""


def find_type(engine: EngineSession, type: TsqlType, position: int) -> DeclaredType:
    """Return the type that a user made. ``position``: of the variable or parameter, for the message. Raises 2715."""
    schema, _, name = type.name.partition(".")
    found = engine.declared_type(schema, name)
    if found is not None:
        return found
    if name in TYPES:
        raise NotSupportedByEmulatorError(f"the data type {name}")
    raise unknown_type(type.name.lstrip("."), position)


def declare(engine: EngineSession, declarations: Sequence[Declaration], scope: Scope) -> None:
    """Enter a batch's variables into its scope."""
    for position, declaration in enumerate(declarations, 1):
        if not is_user_made(declaration.type):
            scope.variables[declaration.name] = Variable(declaration.type)
            continue
        found = find_type(engine, declaration.type, position)
        if found.columns:
            _make_table(engine, scope, declaration.name, found.type, found.columns)
        else:
            scope.variables[declaration.name] = Variable(found.type)


def resolved(engine: EngineSession, formals: Sequence[Formal]) -> tuple[Formal, ...]:
    """Return the parameters of a call with their real types."""
    # The common case costs nothing: no new tuple for each call of an ordinary procedure.
    if not any(is_user_made(formal.type) for formal in formals):
        return tuple(formals)
    return tuple(
        _resolved(engine, formal, position) if is_user_made(formal.type) else formal
        for position, formal in enumerate(formals, 1)
    )


def _resolved(engine: EngineSession, formal: Formal, position: int) -> Formal:
    found = find_type(engine, formal.type, position)
    # A table parameter is READONLY; the real server fails at its OUTPUT when it parses.
    if found.columns and formal.output:
        raise SqlServerError(102, "Incorrect syntax near 'OUTPUT'.", severity=15)
    if found.columns:
        # A table that is not passed is empty, so such a parameter is never missing.
        return replace(formal, type=found.type, default=None, columns=found.columns)
    return replace(formal, type=found.type)


def with_table_types(engine: EngineSession, arguments: Sequence[RpcArgument]) -> Sequence[RpcArgument]:
    """Return the arguments of a call, tables that a client sent with the type that it named. Raises 2715."""
    if not any(isinstance(argument.value, TableValue) for argument in arguments):
        return arguments
    return [_with_table_type(engine, argument) for argument in arguments]


def _with_table_type(engine: EngineSession, argument: RpcArgument) -> RpcArgument:
    value = argument.value
    # The type of a procedure's parameter need not be sent.
    if not isinstance(value, TableValue) or not value.name:
        return argument
    found = engine.declared_type(value.schema, value.name)
    if found is None:
        raise unknown_type(f"{value.schema}.{value.name}".lstrip("."), value.ordinal)
    return replace(argument, type=found.type)


def enter_parameters(bound: Bound, scope: Scope) -> None:
    """Enter the scalar parameters into the scope; tables wait for ``with_tables``."""
    for formal in bound.formals:
        if not formal.columns:
            scope.variables[formal.name] = Variable(formal.type, bound.values[formal.name])


def with_tables(engine: EngineSession, bound: Bound, scope: Scope, events: Iterator[Event]) -> Iterator[Event]:
    """Run a scope, whose own table variables are known, with the tables that were passed to it."""
    with ExitStack() as given:
        for formal in bound.formals:
            if not formal.columns:
                continue
            passed = bound.values[formal.name]
            if passed is None:
                _make_table(engine, scope, formal.name, formal.type, formal.columns)
                continue
            if isinstance(passed, TableValue):
                given.enter_context(engine.given_table(formal.name, formal.columns, passed))
            else:
                # A table that is passed is read-only in the callee, so both scopes may have the same one.
                engine.share_table(formal.name, passed)
            scope.table_types[formal.name] = formal.type
        yield from events


def _make_table(engine: EngineSession, scope: Scope, name: str, type: TsqlType, columns: str) -> None:
    engine.execute(f"CREATE TABLE {name} {columns}", scope.variables)
    scope.tables.append(name)
    scope.table_types[name] = type
