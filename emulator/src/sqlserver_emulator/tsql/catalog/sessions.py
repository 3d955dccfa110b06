"""sp_who: the sessions of the server, with what blocks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.tsql.catalog.queries import Row, ints, result_set, smallints
from sqlserver_emulator.types import SYSNAME, TsqlType

_WIDTHS: Final = {"status": 30, "loginame": 128, "hostname": 128, "blk": 5, "dbname": 128, "cmd": 16}
_COLUMNS: Final = [
    *smallints("spid ecid"),
    *(Column(name, TsqlType("char" if name == "blk" else "nchar", width)) for name, width in _WIDTHS.items()),
    *ints("request_id"),
]
_IDLE: Final = "AWAITING COMMAND"
# The caller's session runs the SELECT of the procedure, as on a server. Of others only PostgreSQL's words are known.
# Locks are read later than states: what a session that was idle then waits for is not shown with it.
_SESSIONS: Final = """
SELECT s.session_id, 0, CASE WHEN b.session_id IS NULL THEN s.status ELSE 'suspended' END, s.login_name, s.host_name,
    coalesce(b.session_id, 0)::text, (SELECT d.name FROM emulator.databases d WHERE d.database_id = s.database_id),
    CASE WHEN s.status <> 'running' THEN $1 WHEN s.host_process_id = pg_backend_pid() THEN 'SELECT'
         ELSE coalesce(upper(substring(a.query FROM '(?i)^\\s*(SELECT|INSERT|UPDATE|DELETE|MERGE)\\M')), 'EXECUTE') END,
    0, s.host_process_id = pg_backend_pid()
FROM emulator_sys.dm_exec_sessions s JOIN pg_stat_activity a ON a.pid = s.host_process_id
LEFT JOIN LATERAL (SELECT min(o.session_id) AS session_id FROM emulator.sessions o
                   WHERE o.backend_pid = ANY (pg_blocking_pids(s.host_process_id))) b ON s.status = 'running'
ORDER BY s.session_id
"""
_LOGIN: Final = "SELECT name FROM emulator.logins WHERE lower(name) = lower($1)"


def _who(call: ProcedureCall) -> Iterator[Event]:
    """Raises 15007. No right on the server is kept but sysadmin's, so others see themselves alone."""
    wanted = call.arguments["@loginame"]
    rows = call.engine.fetch_all(_SESSIONS, [_IDLE])
    if not call.engine.caller_is("sysadmin"):
        rows = [row for row in rows if row[-1]]
    if wanted is not None:
        rows = _chosen(call, rows, str(wanted))
    yield from result_set(_COLUMNS, [_padded(row[:-1]) for row in rows])


def _chosen(call: ProcedureCall, rows: list[Row], wanted: str) -> list[Row]:
    if wanted.lower() == "active":
        return [row for row in rows if row[7] != _IDLE]
    if wanted[:1].isdecimal():
        return [row for row in rows if str(row[0]) == wanted.strip()]
    login = call.engine.fetch_all(_LOGIN, [wanted])
    if not login:
        raise SqlServerError(15007, f"'{wanted}' is not a valid login or you do not have permission.")
    return [row for row in rows if row[3] == login[0][0]]


def _padded(row: Row) -> Row:
    widths = (None, None, *_WIDTHS.values(), None)
    return tuple(v if n is None or v is None else str(v).ljust(n) for v, n in zip(row, widths, strict=True))


SP_WHO: Final = SystemProcedure("sp_who", (Parameter("@loginame", SYSNAME, None),), _who)
