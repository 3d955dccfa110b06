"""The drivers that the one test body runs under: how each connects, marks a parameter, tells an error, loads in bulk.

Every driver is used as its own documentation says; what differs between them is here, and nowhere in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from emulator_process import Emulator

Rows = Iterable[tuple[Any, ...]]


@dataclass(frozen=True)
class Column:
    """Of a table to load; ``ordinal`` counts from 1."""

    ordinal: int
    name: str


@dataclass(frozen=True)
class Driver:
    """``mark``: its sign for a parameter. ``number``: of the server's error in an exception, None where it hides it.

    ``load``: rows into a table by its bulk interface (connection, table, column names, rows). ``binary``: what it takes
    for a varbinary parameter.
    """

    name: str
    mark: str
    connect: Callable[..., Any]
    number: Callable[[BaseException], int | None]
    load: Callable[[Any, str, Sequence[Column], Rows], None]
    binary: Callable[[bytes], object] = bytearray


def _number_in_first_argument(error: BaseException) -> int | None:
    first = error.args[0] if error.args else None
    if isinstance(first, tuple):  # pymssql wraps the error of its lower layer
        first = first[0]
    return first if isinstance(first, int) else None


def _number_of_pytds(error: BaseException) -> int | None:
    return getattr(error, "number", None)


def _no_number(_error: BaseException) -> int | None:
    return None


def _connect_pytds(server: Emulator, database: str, **options: Any) -> Any:
    import pytds

    return pytds.connect(
        server.host,
        database=database,
        user=server.user,
        password=server.password,
        port=server.port,
        bytes_to_unicode=False,
        disable_connect_retry=True,
        **options,
    )


def _pytds_binary(value: bytes) -> object:
    import pytds

    return pytds.Binary(value)


def _load_pymssql(connection: Any, table: str, columns: Sequence[Column], rows: Rows) -> None:
    given = [tuple(_as_datetime(value) for value in row) for row in rows]
    connection.bulk_copy(table, given, column_ids=[column.ordinal for column in columns], batch_size=100_000)


def _as_datetime(value: Any) -> Any:
    """pymssql's bulk_copy takes no plain date."""
    is_date = isinstance(value, date) and not isinstance(value, datetime)
    return datetime.combine(value, time()) if is_date else value


def _load_mssql_python(connection: Any, table: str, columns: Sequence[Column], rows: Rows) -> None:
    names = [column.name for column in columns]
    connection.cursor().bulkcopy(table, rows, column_mappings=names, keep_identity=True)


def _load_pytds(connection: Any, table: str, columns: Sequence[Column], rows: Rows) -> None:
    """Its columns have the types that it is given; these are those of a file of texts, which the server converts."""
    import pytds

    text = pytds.tds_types.NVarCharType(4000)
    announced = [pytds.Column(name=column.name, type=text, flags=pytds.Column.fNullable) for column in columns]
    schema, _, name = table.rpartition(".")
    texts = [tuple(None if value is None else str(value) for value in row) for row in rows]
    connection.cursor().copy_to(data=texts, table_or_view=name, schema=schema or None, columns=announced)


def _mssql_python(encrypt: str) -> Callable[..., Any]:
    return lambda server, database, **options: server.connect_mssql_python(database, encrypt=encrypt, **options)


DRIVERS = {
    driver.name: driver
    for driver in (
        Driver(
            "pymssql",
            "%s",
            lambda server, database, **options: server.connect_pymssql(database, **options),
            _number_in_first_argument,
            _load_pymssql,
        ),
        Driver("mssql-python", "?", _mssql_python("yes"), _no_number, _load_mssql_python),
        Driver("python-tds", "%s", _connect_pytds, _number_of_pytds, _load_pytds, binary=_pytds_binary),
    )
}

ENCRYPTIONS: dict[str, Callable[[Emulator, str], Any]] = {
    "pymssql-request": lambda server, database: server.connect_pymssql(database),
    "pymssql-off": lambda server, database: server.connect_pymssql(database, encryption="off"),
    "pymssql-require": lambda server, database: server.connect_pymssql(database, encryption="require"),
    "mssql-python-no": _mssql_python("no"),
    "mssql-python-optional": _mssql_python("optional"),
    "mssql-python-yes": _mssql_python("yes"),
    "mssql-python-mandatory": _mssql_python("mandatory"),
    "mssql-python-strict": _mssql_python("strict"),
    "python-tds-without-ca": _connect_pytds,
}
"""Every way to ask for encryption, or for none, that a driver has."""
