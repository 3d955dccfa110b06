"""Result sets of CDC's procedures as events, and what all procedures need of a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlserver_emulator.cdc.enabling.enable_database import find_database
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.messages import cdc_error, is_cdc_error
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.contract import ProcedureCall
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Column, Command, Event, Info, ResultStart, Rows, StatementDone
from sqlserver_emulator.types import TsqlType

ResultColumn = tuple[str, TsqlType]
_WORST_QUOTED = 16
"""Severities above end more than the statement."""


def result_set(columns: Sequence[ResultColumn], rows: Sequence[tuple[object, ...]]) -> Iterator[Event]:
    yield ResultStart(tuple(Column(name, type_) for name, type_ in columns))
    if rows:
        yield Rows(rows)
    yield StatementDone(Command.SELECT, row_count=len(rows))


def printed(text: str) -> Info:
    """What PRINT would send."""
    return Info(0, text)


def sql_of(call: ProcedureCall) -> Run:
    """PostgreSQL with the emulator's rights, in the caller's transaction."""
    return call.engine.fetch_all


def text_argument(call: ProcedureCall, name: str) -> str | None:
    """A character argument, NULL as None."""
    value = call.arguments[name]
    return None if value is None else str(value)


def int_argument(call: ProcedureCall, name: str) -> int | None:
    value = call.arguments[name]
    return None if value is None else int(str(int(value) if isinstance(value, bool) else value))


def required_text(call: ProcedureCall, name: str) -> str:
    """Raises 22963 for NULL and for the empty string."""
    value = text_argument(call, name)
    if not value:
        raise cdc_error(22963, name)
    return value


@contextmanager
def inner_procedure(name: str) -> Iterator[None]:
    """Errors from inside name the procedure that the public one calls."""
    try:
        yield
    except SqlServerError as error:
        error.procedure = error.procedure or name
        raise


@contextmanager
def quoted_failure(number: int, subject: str, command: str) -> Iterator[None]:
    """What the engine raises inside ends as CDC's error ``number``, which quotes it; CDC's own errors stay theirs."""
    try:
        yield
    except SqlServerError as error:
        if is_cdc_error(error) or isinstance(error, NotSupportedByEmulatorError) or error.severity > _WORST_QUOTED:
            raise
        raise cdc_error(number, subject, command, error.number, error.message) from error


def require_owner(call: ProcedureCall) -> None:
    """Raises 22904 unless the caller is db_owner of the current database."""
    if not call.engine.caller_is("db_owner"):
        raise cdc_error(22904)


def require_cdc(call: ProcedureCall) -> CdcDatabase:
    """The current database's CDC; raises 22901 when it is off."""
    database = find_database(sql_of(call), call.engine.database)
    if database is None:
        raise cdc_error(22901, call.engine.database)
    return database
