"""sp_addtype and sp_droptype: the older ways to say CREATE TYPE … FROM and DROP TYPE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.engine.names import bracketed
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Event
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.data_types import take_type
from sqlserver_emulator.types import SYSNAME, TsqlType

_NULLABILITY: Final = {"": "", "null": "NULL", "not null": "NOT NULL", "nonull": "NOT NULL"}
_NOT_FOUND: Final = 218
_IN_USE: Final = 3732


def _add(call: ProcedureCall) -> Iterator[Event]:
    """Raises 219 for a name that is taken, 15036 for a type that is none of the system's, 15600 for @nulltype."""
    base = str(call.arguments["@phystype"] or "")
    _check_system_type(base)
    nullability = _NULLABILITY.get(str(call.arguments["@nulltype"] or "").strip().lower())
    if nullability is None:
        message = "An invalid parameter or option was specified for procedure 'sp_addtype'."
        raise SqlServerError(15600, message, severity=15, procedure="sp_addtype")
    name = bracketed(str(call.arguments["@typename"]))
    call.engine.execute(f"CREATE TYPE {_schema(call)}{name} FROM {base} {nullability}", {})
    return iter(())


def _schema(call: ProcedureCall) -> str:
    owner = call.arguments["@owner"]
    return "" if owner is None else bracketed(str(owner)) + "."


def _check_system_type(text: str) -> None:
    cursor = Cursor(text)
    try:
        take_type(cursor)
    except SqlServerError as error:
        raise _unknown(text) from error
    if not cursor.at_end:
        raise _unknown(text)


def _drop(call: ProcedureCall) -> Iterator[Event]:
    """Raises 15036 when there is no such type, 15180 when it is used."""
    name = str(call.arguments["@typename"])
    try:
        call.engine.execute(f"DROP TYPE {bracketed(name)}", {})
    except SqlServerError as error:
        if error.number == _NOT_FOUND:
            raise _unknown(name) from error
        if error.number == _IN_USE:
            raise SqlServerError(15180, "Cannot drop. The data type is being used.") from error
        raise
    return iter(())


def _unknown(name: str) -> SqlServerError:
    return SqlServerError(15036, f"The data type '{name}' does not exist or you do not have permission.")


TYPE_PROCEDURES: Final = (
    SystemProcedure(
        "sp_addtype",
        (
            Parameter("@typename", SYSNAME),
            Parameter("@phystype", SYSNAME),
            Parameter("@nulltype", TsqlType("varchar", 8), default=None),
            Parameter("@owner", SYSNAME, default=None),
        ),
        _add,
    ),
    SystemProcedure("sp_droptype", (Parameter("@typename", SYSNAME),), _drop),
)
