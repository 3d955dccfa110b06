"""sp_addrolemember, sp_droprolemember and sp_addrole: the old spellings of ALTER ROLE and CREATE ROLE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Event
from sqlserver_emulator.syntax.lexer import quote_identifier
from sqlserver_emulator.types import SYSNAME


def _add_member(call: ProcedureCall) -> Iterator[Event]:
    return _change(call, "ADD")


def _drop_member(call: ProcedureCall) -> Iterator[Event]:
    return _change(call, "DROP")


def _change(call: ProcedureCall, action: str) -> Iterator[Event]:
    role, member = (quote_identifier(str(call.arguments[name])) for name in ("@rolename", "@membername"))
    call.engine.execute(f"ALTER ROLE {role} {action} MEMBER {member}", {})
    yield from ()


def _add_role(call: ProcedureCall) -> Iterator[Event]:
    owner = call.arguments["@ownername"]
    authorization = "" if owner is None else f" AUTHORIZATION {quote_identifier(str(owner))}"
    call.engine.execute(f"CREATE ROLE {quote_identifier(str(call.arguments['@rolename']))}{authorization}", {})
    yield from ()


_MEMBERSHIP: Final = (Parameter("@rolename", SYSNAME), Parameter("@membername", SYSNAME))
SP_ADDROLEMEMBER: Final = SystemProcedure("sp_addrolemember", _MEMBERSHIP, _add_member)
SP_DROPROLEMEMBER: Final = SystemProcedure("sp_droprolemember", _MEMBERSHIP, _drop_member)
SP_ADDROLE: Final = SystemProcedure(
    "sp_addrole", (Parameter("@rolename", SYSNAME), Parameter("@ownername", SYSNAME, None)), _add_role
)
