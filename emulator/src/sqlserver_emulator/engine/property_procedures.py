"""sp_addextendedproperty, sp_updateextendedproperty and sp_dropextendedproperty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import SYSNAME, TsqlType

_LEVELS: Final = tuple(f"@level{level}{part}" for level in range(3) for part in ("type", "name"))
_TARGET: Final = """
SELECT d.database_id, t.class, t.major_id, t.minor_id FROM emulator.databases d,
    emulator.property_target(d.database_id, $2, $3, $4, $5, $6, $7) t WHERE d.name = $1 LIMIT 1
"""
_FIND: Final = """
SELECT name FROM emulator.extended_properties WHERE database_id = $1::int AND class = $2::int AND major_id = $3::int
AND minor_id = $4::int AND lower(name) = lower($5)
"""
_INSERT: Final = "INSERT INTO emulator.extended_properties VALUES ($1::int, $2::int, $3::int, $4::int, $5, $6)"
_UPDATE: Final = """
UPDATE emulator.extended_properties SET value = $6
WHERE database_id = $1::int AND class = $2::int AND major_id = $3::int AND minor_id = $4::int
AND lower(name) = lower($5)
"""
_DELETE: Final = """
DELETE FROM emulator.extended_properties WHERE database_id = $1::int AND class = $2::int AND major_id = $3::int
AND minor_id = $4::int AND lower(name) = lower($5)
"""


@dataclass(frozen=True, slots=True)
class _Target:
    """The owner of a property. ``key``: database, class, major and minor id."""

    key: tuple[object, ...]
    name: str


def _target(call: ProcedureCall, procedure: str) -> _Target:
    """Raises 15600 for levels that do not fit together, 15135 where there is nothing of that name."""
    levels = [None if call.arguments[name] is None else str(call.arguments[name]) for name in _LEVELS]
    given = [value is not None for value in levels]
    # Each level is given by its type and name, and none without the one before it.
    if given != sorted(given, reverse=True) or sum(given) % 2 or not call.arguments["@name"]:
        message = f"An invalid parameter or option was specified for procedure '{procedure}'."
        raise SqlServerError(15600, message, severity=15, procedure=procedure)
    shown = ".".join(str(value) for value in levels[1::2] if value is not None) or "object specified"
    may_change = call.engine.caller_is("db_owner") or call.engine.caller_is("db_ddladmin")
    found = call.engine.fetch_all(_TARGET, [call.engine.database, *levels]) if may_change else []
    if not found:
        message = f"Object is invalid. Extended properties are not permitted on '{shown}', or the object does not"
        raise SqlServerError(15135, f"{message} exist.", procedure=procedure)
    return _Target(tuple(found[0]), shown)


def _value(call: ProcedureCall) -> str | None:
    value = call.arguments["@value"]
    return None if value is None else str(call.engine.convert(value, TsqlType("nvarchar", 3750)))


def _add(call: ProcedureCall) -> Iterator[Event]:
    target = _target(call, "sp_addextendedproperty")
    name = call.arguments["@name"]
    if call.engine.fetch_all(_FIND, [*target.key, name]):
        message = f"Property cannot be added. Property '{name}' already exists for '{target.name}'."
        raise SqlServerError(15233, message, procedure="sp_addextendedproperty")
    call.engine.fetch_all(_INSERT, [*target.key, name, _value(call)])
    return iter(())


def _update(call: ProcedureCall) -> Iterator[Event]:
    target = _existing(call, "sp_updateextendedproperty")
    call.engine.fetch_all(_UPDATE, [*target.key, call.arguments["@name"], _value(call)])
    return iter(())


def _drop(call: ProcedureCall) -> Iterator[Event]:
    target = _existing(call, "sp_dropextendedproperty")
    call.engine.fetch_all(_DELETE, [*target.key, call.arguments["@name"]])
    return iter(())


def _existing(call: ProcedureCall, procedure: str) -> _Target:
    target = _target(call, procedure)
    name = call.arguments["@name"]
    if not call.engine.fetch_all(_FIND, [*target.key, name]):
        message = f"Property cannot be updated or deleted. Property '{name}' does not exist for '{target.name}'."
        raise SqlServerError(15217, message, procedure=procedure)
    return target


_NAME: Final = Parameter("@name", SYSNAME)
_VALUE: Final = Parameter("@value", TsqlType("sql_variant"), default=None)
_LEVEL_PARAMETERS: Final = tuple(
    Parameter(name, TsqlType("varchar", 128) if name.endswith("type") else SYSNAME, default=None) for name in _LEVELS
)
PROPERTY_PROCEDURES: Final = (
    SystemProcedure("sp_addextendedproperty", (_NAME, _VALUE, *_LEVEL_PARAMETERS), _add),
    SystemProcedure("sp_updateextendedproperty", (_NAME, _VALUE, *_LEVEL_PARAMETERS), _update),
    SystemProcedure("sp_dropextendedproperty", (_NAME, *_LEVEL_PARAMETERS), _drop),
)
