"""Clients that are no drivers of Python: as jars here, in the folders below as ``make test-clients`` sets them up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator_process import Emulator
from jdbc_body import run
from jdbc_jvm import Jdbc, spark_with_driver, write_trust_store

DATABASE = "ExternalClients"
_names = itertools.count(1)


@pytest.fixture(scope="session")
def clients_database(emulator: Emulator) -> str:
    """An empty database for the tests of this folder."""
    connection = emulator.connect_pymssql("master", autocommit=True)
    connection.cursor().execute(f"IF DB_ID('{DATABASE}') IS NULL CREATE DATABASE {DATABASE}")
    connection.close()
    return DATABASE


@pytest.fixture
def server_variables(emulator: Emulator, clients_database: str) -> dict[str, str]:
    """Return the variables by which a client's program finds the server."""
    where = {"HOST": emulator.host, "PORT": str(emulator.port), "DATABASE": clients_database}
    return where | {"LOGIN": emulator.user, "PASSWORD": emulator.password, "CA_FILE": str(emulator.ca_file)}


@pytest.fixture(scope="module")
def jdbc(emulator: Emulator, clients_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jdbc]:
    trust_store: Path = tmp_path_factory.mktemp("jdbc") / "trust.p12"
    write_trust_store(emulator.ca_file, trust_store)
    with spark_with_driver() as session:
        yield Jdbc(session, emulator, clients_database, trust_store)


@pytest.fixture
def connection(jdbc: Jdbc) -> Iterator[Any]:
    connection = jdbc.connect()
    yield connection
    connection.close()


@pytest.fixture
def table(connection: Any) -> str:
    """An empty table (Id int identity primary key, Name nvarchar(20) not null, Price decimal(10,2))."""
    name = f"dbo.Jdbc{next(_names)}"
    run(
        connection,
        f"CREATE TABLE {name} (Id int IDENTITY PRIMARY KEY, Name nvarchar(20) NOT NULL, Price decimal(10,2))",
    )
    return name
