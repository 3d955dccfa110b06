"""ALTER DATABASE … SET CHANGE_TRACKING: on, off, and its two options."""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.engine.ddl.databases import SYSTEM_DATABASES
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tracking.errors import tracking_error
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax.lexer import INTEGER
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_RETENTION = "CHANGE_RETENTION"
_CLEANUP = "AUTO_CLEANUP"
_MINUTES = {"MINUTES": 1, "HOURS": 60, "DAYS": 1440}
_UNITS = {"MINUTES": 1, "HOURS": 2, "DAYS": 3}
_MOST_MINUTES = 2**31 - 1


@dataclass(slots=True)
class _Options:
    """None: not said."""

    retention: tuple[int, str] | None = None
    cleans_up: bool | None = None


def set_change_tracking(scope: DdlScope, cursor: Cursor, database: str) -> None:
    """Apply what is behind CHANGE_TRACKING. Raises 5088 to 5092, 22114, 22115."""
    switch = ""
    if cursor.accept("="):
        switch = cursor.expect_one_of(("ON", "OFF"))
    elif cursor.word != "(":
        raise cursor.syntax_error()
    options = _take_options(cursor) if switch != "OFF" and cursor.word == "(" else _Options()
    if not cursor.at_end and cursor.word in (",", "WITH"):
        raise tracking_error(22114)
    if not cursor.at_end and cursor.word != ";":
        raise cursor.syntax_error()
    if database in SYSTEM_DATABASES:
        raise tracking_error(5090, database)
    _apply(scope, database, switch, options)


def _take_options(cursor: Cursor) -> _Options:
    options = _Options()
    cursor.expect("(")
    while True:
        option = cursor.expect_one_of((_RETENTION, _CLEANUP))
        cursor.expect("=")
        if option == _CLEANUP:
            if options.cleans_up is not None:
                raise tracking_error(5091, option, state=2)
            options.cleans_up = cursor.expect_one_of(("ON", "OFF")) == "ON"
        else:
            if options.retention is not None:
                raise tracking_error(5091, option, state=2)
            options.retention = _take_retention(cursor)
        if not cursor.accept(","):
            cursor.expect(")")
            return options


def _take_retention(cursor: Cursor) -> tuple[int, str]:
    if cursor.token.kind != INTEGER:
        raise cursor.syntax_error()
    count = int(cursor.take().text)
    if not cursor.at_identifier():
        raise cursor.syntax_error()
    unit = cursor.take().text
    if unit.upper() not in _MINUTES:
        raise tracking_error(155, unit, state=2)
    if not 1 <= count * _MINUTES[unit.upper()] <= _MOST_MINUTES:
        raise tracking_error(5092, _RETENTION, 1, _MOST_MINUTES)
    return count, unit.upper()


def _apply(scope: DdlScope, database: str, switch: str, options: _Options) -> None:
    if scope.access.was_in_transaction:
        message = "ALTER DATABASE statement not allowed within multi-statement transaction."
        raise SqlServerError(226, message, state=6)
    ((database_id, is_on),) = scope.fetch(_STATE, [database])
    if switch == "ON" and is_on:
        raise tracking_error(5088, database)
    if switch != "ON" and not is_on:
        raise tracking_error(5089, database)
    if switch == "OFF" and scope.fetch(_TABLES, [database_id]):
        raise tracking_error(22115, database)
    if switch:
        scope.fetch("SELECT emulator.switch_tracking($1::int, $2::boolean)", [database_id, switch == "ON"])
    if options.retention is not None:
        count, unit = options.retention
        scope.fetch(_SET_RETENTION, [database_id, count, _UNITS[unit]])
    if options.cleans_up is not None:
        scope.fetch(_SET_CLEANUP, [database_id, options.cleans_up])


_STATE = """
SELECT d.database_id, coalesce(t.is_on, false) FROM emulator.databases d
LEFT JOIN emulator.change_tracking_databases t ON t.database_id = d.database_id WHERE d.name = $1
"""
_TABLES = "SELECT 1 FROM emulator.change_tracking_tables WHERE database_id = $1::int LIMIT 1"
_SET_RETENTION = """
UPDATE emulator.change_tracking_databases SET retention_period = $2::int, retention_period_units = $3::smallint
WHERE database_id = $1::int
"""
_SET_CLEANUP = """
UPDATE emulator.change_tracking_databases SET is_auto_cleanup_on = $2::boolean WHERE database_id = $1::int
"""
