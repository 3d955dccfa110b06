"""System procedures that change the engine's catalog: sp_rename, and the older ways to say ALTER ROLE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

from sqlserver_emulator.contract import Parameter, ProcedureCall, ProcedureRegistry, SystemProcedure
from sqlserver_emulator.engine.applock_procedures import APPLOCK_PROCEDURES
from sqlserver_emulator.engine.identity_procedures import DBCC_CHECKIDENT
from sqlserver_emulator.engine.property_procedures import PROPERTY_PROCEDURES
from sqlserver_emulator.engine.tracking_procedures import TRACKING_PROCEDURES
from sqlserver_emulator.engine.type_procedures import TYPE_PROCEDURES
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Column, Command, Event, Info, ResultStart, Rows, StatementDone
from sqlserver_emulator.types import SYSNAME, TsqlType


class ChangesCatalog(Protocol):
    """The part that these procedures use of ``session.PostgresEngineSession`` beyond the contract."""

    def rename(self, name: str, new_name: str, kind: str) -> None: ...

    def change_role_member(self, role: str, member: str, *, adds: bool) -> None: ...


def _text(call: ProcedureCall, name: str) -> str:
    value = call.arguments[name]
    return "" if value is None else str(value)


def _rename(call: ProcedureCall) -> Iterator[Event]:
    session = cast(ChangesCatalog, call.engine)
    session.rename(_text(call, "@objname"), _text(call, "@newname"), _text(call, "@objtype"))
    yield Info(
        15477,
        "Caution: Changing any part of an object name could break scripts and stored procedures.",
        procedure="sp_rename",
    )


_TEXT = """
SELECT o.definition FROM emulator.objects o WHERE o.object_id = tsql.object_id($1, NULL, $2)
"""


def _help_text(call: ProcedureCall) -> Iterator[Event]:
    """The text of a module, a row a line. Raises 15009 (no such object) and 15197 (a table has no text)."""
    name = _text(call, "@objname")
    rows = call.engine.fetch_all(_TEXT, [name, call.engine.database])
    if not rows:
        message = f"The object '{name}' does not exist in database '{call.engine.database}' or is invalid for this"
        raise SqlServerError(15009, f"{message} operation.", procedure="sp_helptext")
    definition = rows[0][0]
    if definition is None:
        raise SqlServerError(15197, f"There is no text for object '{name}'.", procedure="sp_helptext")
    lines = str(definition).splitlines(keepends=True)
    yield ResultStart((Column("Text", TsqlType("nvarchar", 255)),))
    yield Rows([(line,) for line in lines])
    yield StatementDone(Command.SELECT, len(lines))


def _change_owner(call: ProcedureCall) -> Iterator[Event]:
    """Every database belongs to sa, and nothing depends on it."""
    return iter(())


def _add_member(call: ProcedureCall) -> Iterator[Event]:
    session = cast(ChangesCatalog, call.engine)
    session.change_role_member(_text(call, "@rolename"), _text(call, "@membername"), adds=True)
    return iter(())


def _drop_member(call: ProcedureCall) -> Iterator[Event]:
    session = cast(ChangesCatalog, call.engine)
    session.change_role_member(_text(call, "@rolename"), _text(call, "@membername"), adds=False)
    return iter(())


_MEMBER_PARAMETERS = (Parameter("@rolename", SYSNAME), Parameter("@membername", SYSNAME))

PROCEDURES: ProcedureRegistry = {
    procedure.name: procedure
    for procedure in (
        SystemProcedure(
            "sp_rename",
            (
                Parameter("@objname", TsqlType("nvarchar", 1035)),
                Parameter("@newname", SYSNAME),
                Parameter("@objtype", TsqlType("varchar", 13), default=None),
            ),
            _rename,
        ),
        SystemProcedure(
            "sp_helptext",
            (
                Parameter("@objname", TsqlType("nvarchar", 776)),
                Parameter("@columnname", SYSNAME, default=None),
            ),
            _help_text,
        ),
        SystemProcedure(
            "sp_changedbowner",
            (Parameter("@loginame", SYSNAME), Parameter("@map", TsqlType("varchar", 5), default=None)),
            _change_owner,
        ),
        SystemProcedure("sp_addrolemember", _MEMBER_PARAMETERS, _add_member),
        SystemProcedure("sp_droprolemember", _MEMBER_PARAMETERS, _drop_member),
        DBCC_CHECKIDENT,
        *APPLOCK_PROCEDURES,
        *PROPERTY_PROCEDURES,
        *TRACKING_PROCEDURES,
        *TYPE_PROCEDURES,
    )
}
