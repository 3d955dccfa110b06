"""The drivers that the one test body runs under: how each connects, marks a parameter, reports an error, loads in bulk.

Every driver is used as its own documentation says; what differs between them is here, and nowhere in the tests.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

from emulator_process import Emulator, trust

Rows = Iterable[tuple[Any, ...]]
OWN_CONNECTION = "SELECT session_id, connect_time FROM sys.dm_exec_connections WHERE session_id = @@SPID"
"""A query that identifies a connection. Its number alone is soon that of a new session."""
_ODBC_DATETIMEOFFSET = -155


@dataclass(frozen=True)
class Column:
    """A column of a table to load; ``ordinal`` counts from 1."""

    ordinal: int
    name: str


@dataclass(frozen=True)
class Driver:
    """``mark``: its sign for a parameter. ``number``: of the server's error in an exception, None where it hides it.

    ``load``: rows into a table by its bulk interface (connection, table, column names, rows). ``binary``: what it takes
    for a varbinary parameter. ``why_not``: why it cannot be used on this machine, '' where it can.
    """

    name: str
    mark: str
    connect: Callable[..., Any]
    number: Callable[[BaseException], int | None]
    load: Callable[[Any, str, Sequence[Column], Rows], None] | None = None
    binary: Callable[[bytes], object] = bytearray
    why_not: Callable[[], str] = str


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
        bytes_to_unicode=True,
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


def odbc_library() -> Path:
    """Microsoft's msodbcsql18, which comes inside the wheel mssql-python-odbc."""
    import mssql_python_odbc

    machine = {"amd64": "x86_64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    folder = Path(mssql_python_odbc.get_libs_dir()) / "linux" / "debian_ubuntu" / machine / "lib"
    return next(iter(sorted(folder.glob("libmsodbcsql-18*"))), folder / "libmsodbcsql-18.so")


@cache
def _why_no_odbc() -> str:
    try:
        ctypes.CDLL(str(odbc_library()))
        importlib.import_module("pyodbc")
    except (OSError, ImportError) as error:
        needed = "libodbc2 libltdl7 libkrb5-3 libgssapi-krb5-2"
        return f"pyodbc or msodbcsql18 does not load here ({error}); on Debian: apt-get install {needed}"
    return ""


def _connect_pyodbc(server: Emulator, database: str, *, encrypt: str = "yes", **options: Any) -> Any:
    import pyodbc

    trust(server.ca_file)
    pyodbc.native_uuid = True
    connection = pyodbc.connect(
        f"DRIVER={odbc_library()};SERVER=tcp:{server.host},{server.port};DATABASE={database};"
        f"UID={server.user};PWD={{{server.password}}};Encrypt={encrypt}",
        **options,
    )
    connection.add_output_converter(_ODBC_DATETIMEOFFSET, _read_datetimeoffset)
    return connection


def _read_datetimeoffset(data: bytes) -> datetime:
    """ODBC's structure, which pyodbc leaves to its user."""
    year, month, day, hour, minute, second, nanoseconds, hours, minutes = struct.unpack("<6hI2h", data)
    zone = timezone(timedelta(hours=hours, minutes=minutes))
    return datetime(year, month, day, hour, minute, second, nanoseconds // 1000, zone)


def _number_of_odbc(error: BaseException) -> int | None:
    found = re.search(r"\((\d+)\) \(SQL", str(error))
    return int(found[1]) if found else None


def _pyodbc(encrypt: str) -> Callable[..., Any]:
    return lambda server, database, **options: _connect_pyodbc(server, database, encrypt=encrypt, **options)


def _mssql_python(encrypt: str) -> Callable[..., Any]:
    return lambda server, database, **options: server.connect_mssql_python(database, encrypt=encrypt, **options)


@contextmanager
def mssql_python_pool() -> Iterator[None]:
    """Let mssql-python keep closed connections, in a pool that is empty at first.

    The switch is the whole process's: SQLAlchemy's dialect and Floodmark turn it off for good. A pool that is in use
    gives out the connection that has been idle longest, which may be one of an earlier test.
    """
    import mssql_python
    from mssql_python.pooling import PoolingManager

    was_off = PoolingManager.is_initialized() and not PoolingManager.is_enabled()
    mssql_python.pooling(enabled=False)  # closes what it holds
    mssql_python.pooling()
    try:
        yield
    finally:
        if was_off:
            mssql_python.pooling(enabled=False)


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
        Driver("pyodbc", "?", _connect_pyodbc, _number_of_odbc, why_not=_why_no_odbc),
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
    **{f"pyodbc-{encrypt}": _pyodbc(encrypt) for encrypt in ("no", "optional", "yes", "mandatory", "strict")},
    "python-tds-without-ca": _connect_pytds,
    # The chain is verified; to compare the name, python-tds asks pyOpenSSL for what that no longer has.
    "python-tds-verified": lambda server, database: _connect_pytds(
        server, database, cafile=str(server.ca_file), validate_host=False
    ),
    "python-tds-login-only": lambda server, database: _connect_pytds(
        server, database, cafile=str(server.ca_file), validate_host=False, enc_login_only=True
    ),
}
"""Every way to ask for encryption, or for none, that a driver has."""
