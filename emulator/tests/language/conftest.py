"""T-SQL as an application's scripts use it, over the wire: one database a module, a connection of pymssql a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emulator_process import Emulator
from sql_client import SqlClient


@pytest.fixture(scope="module")
def database(emulator: Emulator, request: pytest.FixtureRequest) -> str:
    """A database for the module, named like it."""
    name: str = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    connection = emulator.connect_pymssql("master", autocommit=True)
    connection.cursor().execute(f"CREATE DATABASE [{name}]")
    connection.close()
    return name


@pytest.fixture
def connect(emulator: Emulator, database: str) -> Iterator[Callable[..., SqlClient]]:
    opened: list[Any] = []

    def open_client(**options: Any) -> SqlClient:
        connection = emulator.connect_pymssql(database, autocommit=True, **options)
        opened.append(connection)
        return SqlClient(connection)

    yield open_client
    for connection in opened:
        connection.close()


@pytest.fixture
def client(connect: Callable[..., SqlClient]) -> SqlClient:
    return connect()
