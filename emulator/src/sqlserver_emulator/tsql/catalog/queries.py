"""Helpers of catalog procedures: T-SQL over the sys views with bound arguments, and result sets made in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlserver_emulator.contract import ProcedureCall, Variable
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Column, Command, Event, ResultStart, Rows, StatementDone
from sqlserver_emulator.types import INT, SMALLINT, SYSNAME, TsqlType

NAME = TsqlType("nvarchar", 384)
REMARKS = TsqlType("varchar", 254)

Row = tuple[object, ...]


def query(call: ProcedureCall, text: str, **values: tuple[TsqlType, object]) -> list[Row]:
    """Return all rows of a SELECT; each keyword is a variable without its @."""
    variables = {f"@{name}": Variable(type, value) for name, (type, value) in values.items()}
    result = call.engine.execute(text, variables)
    rows: list[Row] = []
    for batch in result.batches:
        if not isinstance(batch, Rows):
            raise TypeError("a catalog query is never so large that it comes as Arrow")
        rows.extend(batch.rows)
    return rows


def result_set(columns: Sequence[Column], rows: Sequence[Row]) -> Iterator[Event]:
    """Yield a result set as events."""
    yield ResultStart(tuple(columns))
    if rows:
        yield Rows(rows)
    yield StatementDone(Command.SELECT, len(rows))


def names(text: str) -> list[Column]:
    """Return columns of type sysname, from their names."""
    return [Column(name, SYSNAME) for name in text.split()]


def smallints(text: str) -> list[Column]:
    """Return columns of type smallint, from their names."""
    return [Column(name, SMALLINT) for name in text.split()]


def ints(text: str) -> list[Column]:
    """Return columns of type int, from their names."""
    return [Column(name, INT) for name in text.split()]


def check_qualifier(call: ProcedureCall, qualifier: object) -> None:
    """Raise 15250 for another database: catalog procedures read the current one only."""
    # ODBC drivers pass '' and '%' for "any database", which means the current one.
    if qualifier is not None and str(qualifier).lower() not in ("", "%", call.engine.database.lower()):
        message = "The database name component of the object qualifier must be the name of the current database."
        raise SqlServerError(15250, message)


def pattern(value: object, *, use_pattern: bool = True) -> tuple[TsqlType, object]:
    """Return a LIKE pattern for an argument: NULL and '' match all; without patterns its wildcards are literal."""
    if value is None or value == "":
        return NAME, "%"
    text = str(value)
    if not use_pattern:
        for wildcard in "[%_":
            # The bracket is replaced first, or it would be replaced in what the others have become.
            text = text.replace(wildcard, f"[{wildcard}]")
    return NAME, text
