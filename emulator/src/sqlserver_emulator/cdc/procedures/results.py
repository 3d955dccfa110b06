"""Result sets of CDC's procedures as events, and the arguments and checks that all procedures share."""

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
    """Yield a result set as events."""
    yield ResultStart(tuple(Column(name, type_) for name, type_ in columns))
    if rows:
        yield Rows(rows)
    yield StatementDone(Command.SELECT, row_count=len(rows))


def printed(text: str) -> Info:
    """Return the message that PRINT would send."""
    return Info(0, text)


def sql_of(call: ProcedureCall) -> Run:
    """Return PostgreSQL with the emulator's rights, in the caller's transaction."""
    return call.engine.fetch_all


def text_argument(call: ProcedureCall, name: str) -> str | None:
    """Return a character argument, NULL as None."""
    value = call.arguments[name]
    return None if value is None else str(value)


def int_argument(call: ProcedureCall, name: str) -> int | None:
    """Return an integer argument, NULL as None."""
    value = call.arguments[name]
    # The text of a bool is no number.
    return None if value is None else int(str(int(value) if isinstance(value, bool) else value))


def required_text(call: ProcedureCall, name: str) -> str:
    """Return a character argument. Raises 22963 for NULL and for the empty string."""
    value = text_argument(call, name)
    if not value:
        raise cdc_error(22963, name)
    return value


@contextmanager
def inner_procedure(name: str) -> Iterator[None]:
    """Let errors from inside name the procedure that the public one calls."""
    try:
        yield
    except SqlServerError as error:
        error.procedure = error.procedure or name
        raise


@contextmanager
def quoted_failure(number: int, subject: str, command: str) -> Iterator[None]:
    """Turn the engine's errors inside into CDC's error ``number``, which quotes them; CDC's own errors stay theirs."""
    try:
        yield
    except SqlServerError as error:
        # docs/reference/sqlserver_cdc.md, "Errors": CDC's own errors come as they are.
        if is_cdc_error(error) or isinstance(error, NotSupportedByEmulatorError) or error.severity > _WORST_QUOTED:
            raise
        raise cdc_error(number, subject, command, error.number, error.message) from error


def require_owner(call: ProcedureCall) -> None:
    """Raise 22904 unless the caller is db_owner of the current database."""
    if not call.engine.caller_is("db_owner"):
        raise cdc_error(22904)


def require_cdc(call: ProcedureCall) -> CdcDatabase:
    """Return the current database's CDC. Raises 22901 when it is off."""
    database = find_database(sql_of(call), call.engine.database)
    if database is None:
        raise cdc_error(22901, call.engine.database)
    return database
