"""Python values to PostgreSQL's text format, as parameters and as literals. Types are PostgreSQL's to infer."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlserver_emulator import precise
from sqlserver_emulator.contract import Variables
from sqlserver_emulator.engine.names import quote_literal
from sqlserver_emulator.engine.translation import LiteralParameter, ParameterSource
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.precise import PreciseDatetime, PreciseTime
from sqlserver_emulator.syntax.known_names import VARIABLES
from sqlserver_emulator.types import TsqlType


class VariableTypes(Mapping[str, TsqlType]):
    """The types of variables, read only where a statement names them: there are dozens of @@ variables."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables

    def __getitem__(self, name: str) -> TsqlType:
        return self._variables[name].type

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


def parameter_values(
    sources: Sequence[ParameterSource], variables: Variables, engine_variable: Callable[[str], object]
) -> list[object]:
    """The Python values of a translated statement's parameters, in order. Raises 137 for an unknown variable.

    ``engine_variable``: the value of a variable the interpreter does not keep (@@IDENTITY…), or KeyError.
    """
    values: list[object] = []
    for source in sources:
        if isinstance(source, LiteralParameter):
            values.append(source.value)
            continue
        variable = variables.get(source.name)
        # A client's variable hides an engine variable of the same name.
        values.append(
            as_stored(variable.value, variable.type)
            if variable is not None
            else _engine_value(source.name, engine_variable)
        )
    return values


def as_stored(value: object, type_: TsqlType) -> object:
    """Give a date or time the seventh digit that its type is stored with, or take it away."""
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        count = precise.ticks(value)
        return precise.datetime_of(count) if type_.has_ticks else precise.coarse_datetime(count)
    if isinstance(value, datetime.time):
        count = precise.time_ticks(value)
        return precise.time_of(count) if type_.has_ticks else precise.coarse_time(count)
    return value


def _engine_value(name: str, engine_variable: Callable[[str], object]) -> object:
    try:
        return engine_variable(name)
    except KeyError:
        if name in VARIABLES:
            raise NotSupportedByEmulatorError(f"the variable {name.upper()}") from None
        message = f'Must declare the scalar variable "{name}".'
        raise SqlServerError(137, message, severity=15, state=2) from None


def to_parameters(values: Sequence[object]) -> list[bytes | None]:
    """Return the values as parameters in PostgreSQL's text format."""
    return [None if value is None else to_text(value).encode() for value in values]


def to_text(value: object) -> str:
    """Return what PostgreSQL's input function for the value's type reads."""
    for type_, text_of in _TEXT_OF.items():
        if isinstance(value, type_):
            return text_of(value)
    raise TypeError(f"no parameter type for {type(value).__name__}")


def to_literal(value: object) -> str:
    """The value as an untyped SQL literal, for statements that cannot carry parameters (COPY)."""
    if value is None:
        return "NULL"
    return quote_literal(to_text(value))


def _datetime_text(value: datetime.datetime) -> str:
    offset = value.utcoffset()
    if offset is not None:
        # The text of the composite type: ticks in UTC and minutes of offset (ADR 4, "Storage choices with effects
        # elsewhere").
        minutes = offset // datetime.timedelta(minutes=1)
        return f"({precise.ticks(value) - minutes * precise.MINUTE_TICKS},{minutes})"
    # What is stored as ticks is written as ticks (ADR 49).
    return str(precise.ticks(value)) if isinstance(value, PreciseDatetime) else value.isoformat(sep=" ")


def _time_text(value: datetime.time) -> str:
    return str(precise.time_ticks(value)) if isinstance(value, PreciseTime) else value.isoformat()


def _without_nul(text: str) -> str:
    """Refuse U+0000, which libpq would take as the end of the text. What comes as a value has it escaped (ADR 50)."""
    if "\0" in text:
        raise SqlServerError(49999, "sqlserver_emulator does not support the character U+0000 in names.")
    return text


_TEXT_OF: dict[type, Callable[[Any], str]] = {
    str: _without_nul,
    bool: lambda value: "1" if value else "0",
    int: str,
    # str() of a Decimal may have an exponent.
    Decimal: lambda value: format(value, "f"),
    bytes: lambda value: "\\x" + value.hex(),
    bytearray: lambda value: "\\x" + value.hex(),
    # repr gives the shortest text that reads back as the same float.
    float: repr,
    datetime.datetime: _datetime_text,
    datetime.date: datetime.date.isoformat,
    datetime.time: _time_text,
    UUID: str,
}
"""In this order: bool is an int, and datetime a date."""

# Quoted parts are matched first, so a $1 inside a string or a name stays.
_PLACEHOLDER_OR_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\d+)""")


def inline(sql: str, values: Sequence[object]) -> str:
    """``sql`` with $1..$n replaced by untyped literals."""

    def replace(found: re.Match[str]) -> str:
        number = found.group(1)
        return found.group(0) if number is None else to_literal(values[int(number) - 1])

    return _PLACEHOLDER_OR_QUOTED.sub(replace, sql)
