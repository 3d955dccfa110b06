"""The clients that are measured: how each connects to the emulator, over TLS where it can."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class Address(Protocol):
    """Where the emulator listens, and who logs in."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def user(self) -> str: ...

    @property
    def password(self) -> str: ...

    @property
    def ca_file(self) -> str | Path: ...


def connect_pymssql(address: Address, database: str) -> Any:
    import pymssql

    return pymssql.connect(
        server=address.host,
        port=str(address.port),
        user=address.user,
        password=address.password,
        database=database,
        autocommit=True,
        encryption="require",
    )


def _odbc_text(address: Address, database: str) -> str:
    # OpenSSL inside the drivers reads the file at the first connection of the process.
    os.environ.setdefault("SSL_CERT_FILE", str(address.ca_file))
    return (
        f"Server={address.host},{address.port};Database={database};UID={address.user};PWD={{{address.password}}};"
        "Encrypt=yes;TrustServerCertificate=yes"
    )


def connect_mssql_python(address: Address, database: str) -> Any:
    import mssql_python

    return mssql_python.connect(_odbc_text(address, database), autocommit=True)


def connect_pyodbc(address: Address, database: str) -> Any:
    """With the driver of mssql-python's wheel. Raises ImportError or pyodbc.Error where it cannot load."""
    import pyodbc

    return pyodbc.connect(f"Driver={_odbc_library()};{_odbc_text(address, database)}", autocommit=True)


def _odbc_library() -> Path:
    import mssql_python_odbc

    found = sorted(Path(mssql_python_odbc.get_libs_dir()).glob("linux/debian_ubuntu/*/lib/libmsodbcsql-18*"))
    if not found:
        raise ImportError("mssql-python brings no ODBC driver for this machine")
    return found[0]


def connect_pytds(address: Address, database: str) -> Any:
    """The chain of certificates is verified; to compare the name it asks pyOpenSSL for what that no longer has."""
    import pytds

    return pytds.connect(
        address.host,
        database,
        address.user,
        address.password,
        port=address.port,
        autocommit=True,
        disable_connect_retry=True,
        cafile=str(address.ca_file),
        validate_host=False,
    )


Connect = Callable[[Address, str], Any]


def read_rows(connection: Any, statement: str) -> int:
    cursor = connection.cursor()
    cursor.execute(statement)
    rows = 0
    while part := cursor.fetchmany(5_000):
        rows += len(part)
    return rows


def read_arrow(connection: Any, statement: str) -> int:
    cursor = connection.cursor()
    cursor.execute(statement)
    with cursor.arrow_reader(8_192) as reader:
        return sum(batch.num_rows for batch in reader)


CLIENTS: dict[str, tuple[Connect, Callable[[Any, str], int]]] = {
    "pymssql": (connect_pymssql, read_rows),
    "mssql-python, rows": (connect_mssql_python, read_rows),
    "mssql-python, Arrow": (connect_mssql_python, read_arrow),
    "python-tds": (connect_pytds, read_rows),
    "pyodbc": (connect_pyodbc, read_rows),
}
