"""Table-valued parameters that a client sent: their rows go into a table variable, by INSERT.

An INSERT, and not COPY, because columns may be of other types than those of the table type: they are converted as T-SQL
does, with its errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final

from sqlserver_emulator.contract import EngineSession, Variable
from sqlserver_emulator.engine.access.identity import IdentityValues
from sqlserver_emulator.engine.access.session_access import SessionAccess
from sqlserver_emulator.engine.catalog.cache import Relation
from sqlserver_emulator.engine.translation import CatalogColumn
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError, TableDataError
from sqlserver_emulator.session import TableValue
from sqlserver_emulator.types import TsqlType

_CELLS_AT_ONCE: Final = 2000
_ROWS_AT_ONCE: Final = 1000
"""The most that T-SQL's VALUES may have."""
_NO_FAULT_OF_THE_DATA: Final = frozenset({NotSupportedByEmulatorError.NUMBER, 3617})
_FATAL: Final = 17


@contextmanager
def given_table(
    session: EngineSession,
    access: SessionAccess,
    identity: IdentityValues,
    parameter: tuple[str, str],
    value: TableValue,
) -> Iterator[None]:
    """Have a client's table as a parameter, to be read only. ``parameter``: its name, and the columns of its type."""
    (name, columns), catalog = parameter, access.catalog
    session.execute(f"CREATE TABLE {name} {columns}", {})
    made = catalog.temporary(name)
    assert made is not None  # noqa: S101 - it was just made
    try:
        with identity.kept():
            _fill(session, name, made, value)
        session.share_table(name, made)
        yield
    finally:
        # A rollback has dropped it already. What is read only would not be dropped.
        if catalog.temporary(name) is not None:
            catalog.add_temporary(made)
            with suppress(SqlServerError):  # after a cancel; it goes with the session at the latest
                session.execute(f"DROP TABLE IF EXISTS {name}", {})


def _fill(session: EngineSession, name: str, made: Relation, value: TableValue) -> None:
    columns = made.table.columns
    if not value.columns:
        return
    if len(value.columns) != len(columns):
        message = (
            f"Trying to pass a table-valued parameter with {len(value.columns)} column(s) where the corresponding "
            f"user-defined table type requires {len(columns)} column(s)."
        )
        raise SqlServerError(500, message)
    sent = [(column, type_) for column, type_ in zip(columns, value.columns, strict=True) if type_ is not None]
    for column, _ in sent:
        _check(column, value)
    identity = next((number for number, (column, _) in enumerate(sent) if column.identity), None)
    rows = value.rows if identity is None else _without_identity(value.rows, identity)
    targets = [pair for pair in sent if not pair[0].identity]
    for chunk in _chunks(rows, min(_ROWS_AT_ONCE, max(_CELLS_AT_ONCE // max(len(targets), 1), 1))):
        try:
            _insert(session, name, targets, chunk)
        except SqlServerError as error:
            if error.number in _NO_FAULT_OF_THE_DATA or error.severity >= _FATAL:
                raise
            raise TableDataError(value.parameter, value.ordinal, error) from error


def _check(column: CatalogColumn, value: TableValue) -> None:
    if column.computed:
        raise NotSupportedByEmulatorError("values for a computed column of a table-valued parameter")
    if column.type.name == "rowversion":
        message = (
            "The incoming tabular data stream (TDS) remote procedure call (RPC) protocol stream is incorrect. "
            f'Table-valued parameter {value.ordinal} ("{value.parameter}"), row 0, column {column.column_id}: '
            "Data type 0xF3 (user-defined table type) timestamp column is required to be default."
        )
        raise SqlServerError(8052, message)


def _without_identity(rows: Iterable[tuple[object, ...]], position: int) -> Iterator[tuple[object, ...]]:
    for row in rows:
        # Clients that know no defaults send a NULL for it.
        if row[position] is not None:
            raise SqlServerError(1077, "INSERT into an identity column not allowed on table variables.")
        yield row[:position] + row[position + 1 :]


def _chunks(rows: Iterable[tuple[object, ...]], size: int) -> Iterator[list[tuple[object, ...]]]:
    remaining = iter(rows)
    while chunk := list(islice(remaining, size)):
        yield chunk


def _insert(
    session: EngineSession,
    name: str,
    targets: Sequence[tuple[CatalogColumn, TsqlType]],
    rows: Sequence[tuple[object, ...]],
) -> None:
    if not targets:
        # Nothing but defaults: VALUES needs a column to name, and an identity column cannot be one.
        for _ in rows:
            session.execute(f"INSERT INTO {name} DEFAULT VALUES", {})
        return
    listed = ", ".join("[" + column.name.replace("]", "]]") + "]" for column, _ in targets)
    variables: dict[str, Variable] = {}
    texts = []
    for row in rows:
        names = [f"@v{len(variables) + number}" for number in range(len(targets))]
        variables |= {
            variable: Variable(type_, cell) for variable, (_, type_), cell in zip(names, targets, row, strict=True)
        }
        texts.append(f"({', '.join(names)})")
    # Both the name of the parameter and those of the columns come from the catalog.
    session.execute(f"INSERT INTO {name} ({listed}) VALUES {', '.join(texts)}", variables)  # noqa: S608
