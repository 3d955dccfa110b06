"""sp_getapplock and sp_releaseapplock: locks that applications agree on, as advisory locks of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol, cast

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import INT, SYSNAME, TsqlType

_FAILED: Final = -999
_RESOURCE_LENGTH: Final = 255
_MODES: Final = {"shared": True, "intentshared": True, "exclusive": False}
"""Mode -> whether it is shared. Intent to share conflicts with nothing else that is there."""
_REFUSED_MODES: Final = frozenset(("update", "intentexclusive"))
_RAISES: Final = "xp_userlock"
_KEY: Final = """
SELECT hashtextextended(format('%s:%s:%s', d.database_id, lower($2::text), $3::text), 0),
       EXISTS (SELECT FROM emulator.principals p
               WHERE p.database_id = d.database_id AND lower(p.name) = lower($2::text))
FROM emulator.databases d WHERE d.name = $1
"""


class HoldsLocks(Protocol):
    """The part of ``session.PostgresEngineSession`` that is used beyond the contract."""

    has_session_locks: bool


def _get(call: ProcedureCall) -> Iterator[Event]:
    """Raises 1202, 1224 and 1227; what became of the lock, or of a wrong call, is the return code."""
    call.return_code = _FAILED
    mode = str(call.arguments["@lockmode"] or "").lower()
    if mode in _REFUSED_MODES:
        raise NotSupportedByEmulatorError(f"sp_getapplock with the mode {call.arguments['@lockmode']}")
    if mode not in _MODES or not _may_own(call):
        return iter(())
    timeout = call.arguments["@locktimeout"]
    milliseconds = _session_timeout(call) if timeout is None else int(str(timeout))
    if milliseconds < -1:
        message = "An invalid application lock time-out was passed to xp_userlock."
        raise SqlServerError(1227, message, state=2, procedure=_RAISES)
    key, is_session = _key(call), _is_session(call)
    if is_session:
        cast(HoldsLocks, call.engine).has_session_locks = True
    asked = "SELECT emulator.get_applock($1::bigint, $2::boolean, $3::boolean, $4::int)"
    ((status,),) = call.engine.fetch_all(asked, [key, _MODES[mode], is_session, milliseconds])
    call.return_code = int(str(status))
    return iter(())


def _release(call: ProcedureCall) -> Iterator[Event]:
    """Raises 1202, 1223 and 1224."""
    call.return_code = _FAILED
    if not _may_own(call):
        return iter(())
    asked = "SELECT emulator.release_applock($1::bigint, $2::boolean)"
    ((is_held,),) = call.engine.fetch_all(asked, [_key(call), _is_session(call)])
    if not is_held:
        message = f"Cannot release the application lock (Database Principal: '{call.arguments['@dbprincipal']}',"
        message += f" Resource: '{call.arguments['@resource']}') because it is not currently held."
        raise SqlServerError(1223, message, procedure=_RAISES)
    call.return_code = 0
    return iter(())


def _may_own(call: ProcedureCall) -> bool:
    owner = str(call.arguments["@lockowner"] or "").lower()
    return owner == "session" or (owner == "transaction" and call.in_transaction)


def _is_session(call: ProcedureCall) -> bool:
    return str(call.arguments["@lockowner"]).lower() == "session"


def _key(call: ProcedureCall) -> int:
    resource, principal = call.arguments["@resource"], str(call.arguments["@dbprincipal"] or "")
    if resource is None:
        message = "An invalid application lock resource was passed to xp_userlock."
        raise SqlServerError(1224, message, state=5, procedure=_RAISES)
    where = [call.engine.database, principal, str(resource)[:_RESOURCE_LENGTH]]
    ((key, is_known),) = call.engine.fetch_all(_KEY, where)
    if not is_known:
        message = f"The database-principal '{principal}' does not exist or user is not a member."
        raise SqlServerError(1202, message, procedure=_RAISES)
    return int(str(key))


def _session_timeout(call: ProcedureCall) -> int:
    """Return what SET LOCK_TIMEOUT said: PostgreSQL's 0 is no limit."""
    ((milliseconds,),) = call.engine.fetch_all("SELECT setting::int FROM pg_settings WHERE name = 'lock_timeout'")
    return int(str(milliseconds)) or -1


_OWNER_PARAMETERS: Final = (
    Parameter("@LockOwner", TsqlType("varchar", 32), "Transaction"),
    Parameter("@LockTimeout", INT, None),
    Parameter("@DbPrincipal", SYSNAME, "public"),
)
_RESOURCE: Final = Parameter("@Resource", TsqlType("nvarchar", 255))
APPLOCK_PROCEDURES: Final = (
    SystemProcedure(
        "sp_getapplock", (_RESOURCE, Parameter("@LockMode", TsqlType("varchar", 32)), *_OWNER_PARAMETERS), _get
    ),
    SystemProcedure("sp_releaseapplock", (_RESOURCE, _OWNER_PARAMETERS[0], _OWNER_PARAMETERS[2]), _release),
)
