"""Change Tracking over the wire: a database a module that tracks changes, connections that end with a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pymssql
import pytest

from emulator_process import Emulator
from sql_client import SqlClient


@pytest.fixture(scope="module")
def database(emulator: Emulator, request: pytest.FixtureRequest) -> str:
    """A database for the module, named like it, which tracks changes and allows SNAPSHOT."""
    name: str = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    connection = emulator.connect_pymssql("master", autocommit=True)
    cursor = connection.cursor()
    cursor.execute(f"CREATE DATABASE [{name}]")
    cursor.execute(f"ALTER DATABASE [{name}] SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 2 DAYS, AUTO_CLEANUP = OFF)")
    cursor.execute(f"ALTER DATABASE [{name}] SET ALLOW_SNAPSHOT_ISOLATION ON")
    connection.close()
    return name


@pytest.fixture
def connect(emulator: Emulator, database: str) -> Iterator[Callable[..., SqlClient]]:
    opened: list[Any] = []

    def open_client(user: str = "", password: str = "", at: str = "") -> SqlClient:
        connection = pymssql.connect(
            server=emulator.host,
            port=str(emulator.port),
            user=user or emulator.user,
            password=password or emulator.password,
            database=at or database,
            autocommit=True,
        )
        opened.append(connection)
        return SqlClient(connection)

    yield open_client
    for connection in opened:
        connection.close()


@pytest.fixture
def client(connect: Callable[..., SqlClient]) -> SqlClient:
    return connect()


@pytest.fixture
def tracked(client: SqlClient) -> SqlClient:
    """A connection, and dbo.t (id, a, b, c) made just now, tracked with its columns."""
    client.run("DROP TABLE IF EXISTS dbo.t")
    client.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, a int, b int, c int)")
    client.run("ALTER TABLE dbo.t ENABLE CHANGE_TRACKING WITH (TRACK_COLUMNS_UPDATED = ON)")
    return client
