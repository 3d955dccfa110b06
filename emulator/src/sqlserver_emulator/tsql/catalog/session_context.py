"""sp_set_session_context: values that the session's own statements and triggers read by SESSION_CONTEXT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import SYSNAME, TsqlType


def _set(call: ProcedureCall) -> Iterator[Event]:
    arguments = call.arguments
    call.engine.values.set(str(arguments["@key"]), arguments["@value"], read_only=bool(arguments["@read_only"]))
    yield from ()


SP_SET_SESSION_CONTEXT: Final = SystemProcedure(
    "sp_set_session_context",
    (
        Parameter("@key", SYSNAME),
        Parameter("@value", TsqlType("sql_variant")),
        Parameter("@read_only", TsqlType("bit"), 0),
    ),
    _set,
)
