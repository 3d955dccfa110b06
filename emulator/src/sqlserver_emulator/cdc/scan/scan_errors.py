"""The errors of a failed scan (docs/reference/sqlserver_cdc.md, "DDL"): the cause by SQL Server's number, then that
the scan failed.

A change table that cannot follow a new type of its source column is the usual cause: what it holds does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import psycopg

from sqlserver_emulator.errors import SqlServerError

LOG_SCAN_FAILED: Final = 22859
_COLUMN_NOT_ALTERED: Final = 22976
# PostgreSQL's message ends with the value in quotes.
_QUOTED: Final = re.compile(r'"(.*)"$', re.DOTALL)


class ColumnNotAlteredError(psycopg.Error):
    """A change table's column cannot take the type ``type_name``; ``__cause__`` is PostgreSQL's reason."""

    def __init__(self, instance: str, column: str, type_name: str) -> None:
        super().__init__(f"column {column} of instance {instance} cannot be {type_name}")
        self.instance = instance
        self.column = column
        self.type_name = type_name


def scan_failures(error: psycopg.Error) -> list[SqlServerError]:
    """Return the errors of a failed scan, cause first."""
    if not isinstance(error, ColumnNotAlteredError):
        return [SqlServerError(LOG_SCAN_FAILED, str(error))]
    cause = error.__cause__
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    explain = _CAUSES.get(state or "")
    first = explain(error, str(cause)) if explain else SqlServerError(LOG_SCAN_FAILED, str(cause))
    text = (
        f"Could not alter column '{error.column}' of change table 'cdc.{error.instance}_CT' in response to a data type"
        " change in the corresponding column of the source table. Refer to previous errors in the current session to"
        " identify the cause and correct any associated problems."
    )
    return [first, SqlServerError(_COLUMN_NOT_ALTERED, text)]


def _truncated(error: ColumnNotAlteredError, _cause: str) -> SqlServerError:
    text = f"String or binary data would be truncated in table 'cdc.{error.instance}_CT', column '{error.column}'."
    return SqlServerError(2628, text)


def _overflow(error: ColumnNotAlteredError, _cause: str) -> SqlServerError:
    return SqlServerError(8115, f"Arithmetic overflow error converting expression to data type {error.type_name}.")


def _not_convertible(error: ColumnNotAlteredError, cause: str) -> SqlServerError:
    found = _QUOTED.search(cause)
    value = f" '{found[1]}'" if found else ""
    return SqlServerError(245, f"Conversion failed when converting the value{value} to data type {error.type_name}.")


# The SQLSTATEs: a text too long, a number out of range, a text that is no value of the type. The numbers are those of
# docs/reference/sqlserver_cdc.md, "DDL".
_CAUSES: Final[dict[str, Callable[[ColumnNotAlteredError, str], SqlServerError]]] = {
    "22001": _truncated,
    "22003": _overflow,
    "22P02": _not_convertible,
}
