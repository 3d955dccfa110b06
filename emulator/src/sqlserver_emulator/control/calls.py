"""Parts that every control procedure shares: who may call it, its arguments, and how it says no."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Event

SCHEMA: Final = "emulator"
REFUSED: Final = 49998
"""The number of every refusal of a value. No real server sends it."""

Run = Callable[[ProcedureCall], Iterator[Event]]


def refusal(text: str) -> SqlServerError:
    """Return the error that refuses a value."""
    return SqlServerError(REFUSED, text)


def control_procedure(name: str, parameters: tuple[Parameter, ...], run: Run, does: str) -> SystemProcedure:
    """``run`` for a sysadmin; any other login gets what SQL Server says of a procedure one may not execute."""

    def run_for_sysadmin(call: ProcedureCall) -> Iterator[Event]:
        # SQL Server's own error for a procedure that one may not execute.
        if not call.engine.caller_is("sysadmin"):
            message = (
                f"The EXECUTE permission was denied on the object '{name}', database '{call.engine.database}', "
                f"schema '{SCHEMA}'."
            )
            raise SqlServerError(229, message, severity=14, state=5)
        yield from run(call)

    return SystemProcedure(name, parameters, run_for_sysadmin, does)


def required(call: ProcedureCall, name: str) -> object:
    """Return an argument. Raises 49998 for NULL."""
    # A parameter without a default may still be given as NULL.
    value = call.arguments[name]
    if value is None:
        raise refusal(f"{name} must not be NULL.")
    return value


def text(call: ProcedureCall, name: str) -> str:
    """A character argument; NULL as the empty text."""
    value = call.arguments[name]
    return "" if value is None else str(value)


def whole(call: ProcedureCall, name: str, least: int, most: int) -> int:
    """Return a whole number within bounds. Raises 49998."""
    value = required(call, name)
    if not isinstance(value, int) or not least <= value <= most:
        raise refusal(f"{name} must be from {least} to {most}, not {value}.")
    return value


def seconds(call: ProcedureCall, name: str, most: float) -> float:
    """Return a number of seconds within bounds. Raises 49998."""
    value = required(call, name)
    if not isinstance(value, int | float) or not 0 <= value <= most:
        raise refusal(f"{name} must be from 0 to {most:.0f} seconds, not {value}.")
    return float(value)


def existing_database(call: ProcedureCall, name: str) -> str:
    """The database's real name."""
    rows = call.engine.fetch_all("SELECT name::text FROM emulator.databases WHERE lower(name) = lower($1)", (name,))
    if not rows:
        raise refusal(f"There is no database '{name}'.")
    return str(rows[0][0])


def existing_table(call: ProcedureCall, database: str, name: str) -> int:
    """Return the id of a table of the database, by its name with or without its schema."""
    schema, _, table = name.replace("[", "").replace("]", "").rpartition(".")
    rows = call.engine.fetch_all(
        "SELECT o.object_id FROM emulator.objects o JOIN emulator.schemas s USING (database_id, schema_id)"
        " JOIN emulator.databases d USING (database_id)"
        " WHERE d.name = $1 AND lower(s.name) = lower($2) AND lower(o.name) = lower($3) AND o.type = 'U'",
        (database, schema or "dbo", table),
    )
    if not rows:
        raise refusal(f"There is no table '{name}' in database '{database}'.")
    return int(str(rows[0][0]))
