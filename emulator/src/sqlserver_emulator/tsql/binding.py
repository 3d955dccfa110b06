"""Arguments to parameters: positional first, then named, defaults, OUTPUT; the errors of a call that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlserver_emulator.contract import REQUIRED, Parameter, Variable
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.session import RpcArgument, TableValue
from sqlserver_emulator.syntax.statements import ParameterDeclaration, SystemVariable
from sqlserver_emulator.tsql.faults import CallError
from sqlserver_emulator.types import TsqlType

Convert = Callable[[object, TsqlType], object]


@dataclass(frozen=True, slots=True)
class Formal:
    """A parameter as declared. ``name`` lower-case with @; ``shown`` as declared, for messages."""

    name: str
    shown: str
    type: TsqlType
    default: object = REQUIRED
    output: bool = False
    columns: str = ""
    """The columns of a table type, in parentheses."""

    @classmethod
    def of_system(cls, parameter: Parameter) -> Formal:
        """Return the parameter of a system procedure."""
        return cls(parameter.name.lower(), parameter.name, parameter.type, parameter.default, parameter.output)

    @classmethod
    def of_user(cls, parameter: ParameterDeclaration) -> Formal:
        """Return the parameter of a procedure or text of a user."""
        default = REQUIRED if parameter.default is None else parameter.default.value
        return cls(parameter.name, parameter.shown or parameter.name, parameter.type, default, parameter.output)


@dataclass(frozen=True, slots=True)
class Bound:
    """``values`` by lower-case name, converted. ``outputs``: (argument index, formal) of each OUTPUT argument."""

    formals: tuple[Formal, ...]
    values: dict[str, object]
    outputs: tuple[tuple[int, Formal], ...]


def bind(procedure: str, formals: Sequence[Formal], arguments: Sequence[RpcArgument], convert: Convert) -> Bound:
    """Bind arguments to parameters. Raises 201, 8143 to 8146, 8162, 8114 for a value, or what a conversion raises."""
    given = given_to(procedure, formals, arguments)
    values: dict[str, object] = {}
    outputs: list[tuple[int, Formal]] = []
    for formal in formals:
        index = given.get(formal.name)
        argument = None if index is None else arguments[index]
        if index is None or argument is None or argument.default:
            values[formal.name] = _default(procedure, formal, convert)
            continue
        # The reverse is allowed: a parameter declared OUTPUT may be passed without it, and gives nothing back.
        if argument.output:
            if not formal.output:
                raise _not_output(formal)
            outputs.append((index, formal))
        # A type that a user made carries its schema in its name (`user_types.find_type`).
        is_table = "." in argument.type.name or argument.type.name == "table" or isinstance(argument.value, TableValue)
        if is_table or formal.columns:
            values[formal.name] = _passed_table(argument, formal)
        else:
            values[formal.name] = _converted(argument, formal.type, convert)
    return Bound(tuple(formals), values, tuple(outputs))


def given_to(procedure: str, formals: Sequence[Formal], arguments: Sequence[RpcArgument]) -> dict[str, int]:
    """Return the index of the argument for each parameter that has one, by lower-case name. Raises 8143 to 8146."""
    if arguments and not formals:
        message = f"Procedure {procedure} has no parameters and arguments were supplied."
        raise SqlServerError(8146, message, state=2, procedure=procedure)
    given: dict[str, int] = {}
    names = {formal.name for formal in formals}
    for index, argument in enumerate(arguments):
        if argument.name:
            name = argument.name.lower()
            if name not in names:
                message = f"{argument.name} is not a parameter for procedure {procedure}."
                raise SqlServerError(8145, message, procedure=procedure)
        # An RPC may mix both kinds: an argument without a name counts by its own place.
        elif index >= len(formals):
            message = f"Procedure or function {procedure} has too many arguments specified."
            raise SqlServerError(8144, message, state=2, procedure=procedure)
        else:
            name = formals[index].name
        if name in given:
            raise SqlServerError(8143, f"Parameter '{argument.name}' was supplied multiple times.")
        given[name] = index
    return given


def _default(procedure: str, formal: Formal, convert: Convert) -> object:
    if formal.default is REQUIRED:
        message = f"Procedure or function '{procedure}' expects parameter '{formal.shown}', which was not supplied."
        raise SqlServerError(201, message, state=4, procedure=procedure)
    return None if formal.default is None else convert(formal.default, formal.type)


def _not_output(formal: Formal) -> SqlServerError:
    message = (
        f'The formal parameter "{formal.shown}" was not declared as an OUTPUT parameter, but the actual parameter '
        "passed in requested output."
    )
    return SqlServerError(8162, message, state=2)


def _passed_table(argument: RpcArgument, formal: Formal) -> object:
    # A client need not name the type of a table.
    is_unnamed = isinstance(argument.value, TableValue) and not argument.value.name and formal.columns
    if argument.type != formal.type and not is_unnamed:
        given, wanted = (type.name.rpartition(".")[2] for type in (argument.type, formal.type))
        raise CallError(206, f"Operand type clash: {given} is incompatible with {wanted}", state=2)
    return argument.value


_CONVERSION_ERRORS = frozenset({241, 244, 245, 248, 8114, 8169})


def _converted(argument: RpcArgument, to: TsqlType, convert: Convert) -> object:
    """Convert an argument; a failure is error 8114 of its own, which ends the statement and not the batch."""
    # A type with a length is converted nevertheless, as a value may be longer than that.
    if argument.value is None or (argument.type == to and not to.length):
        return argument.value
    try:
        return convert(argument.value, to)
    except SqlServerError as error:
        if error.number not in _CONVERSION_ERRORS:
            raise
        message = f"Error converting data type {argument.type.name} to {to.name}."
        raise CallError(8114, message, state=5) from error


_OTHER_NAMES = {"@statement": "@stmt", "@parameters": "@params"}
"""sp_executesql's own names, which tedious uses, for the documented ones."""


def leading(names: Sequence[str], arguments: Sequence[RpcArgument]) -> tuple[list[RpcArgument | None], int]:
    """Return the arguments for ``names``, and their number; the procedure forwards the rest.

    By name where all are known. Otherwise by position: a server does not compare these names (tiberius sends ``stmt``).
    """
    first = arguments[: len(names)]
    given = [_OTHER_NAMES.get(name, name) for name in (argument.name.lower() for argument in first)]
    by_name = all(name in names for name in given if name)
    found: list[RpcArgument | None] = [None] * len(names)
    for position, (name, argument) in enumerate(zip(given, first, strict=True)):
        found[names.index(name) if name and by_name else position] = argument
    return found, len(first)


def with_system_values(formals: tuple[Formal, ...], variables: Mapping[str, Variable]) -> tuple[Formal, ...]:
    """Return the parameters, defaults that are variables with @@ having their present values."""
    if not any(isinstance(formal.default, SystemVariable) for formal in formals):
        return formals
    return tuple(
        replace(formal, default=_system_value(formal.default.name, variables))
        if isinstance(formal.default, SystemVariable)
        else formal
        for formal in formals
    )


def _system_value(name: str, variables: Mapping[str, Variable]) -> object:
    if name not in variables:
        raise NotSupportedByEmulatorError(f"{name.upper()} as the default of a parameter")
    return variables[name].value


def formals_of(parameters: Iterable[ParameterDeclaration]) -> tuple[Formal, ...]:
    """Return the formal parameters of declarations."""
    return tuple(Formal.of_user(parameter) for parameter in parameters)
