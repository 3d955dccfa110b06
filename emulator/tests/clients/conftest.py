"""One database of the shared emulator for all clients, and a connection by each driver in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from client_body import DATABASE
from drivers import DRIVERS, Driver
from emulator_process import Emulator


@pytest.fixture(scope="session")
def server(emulator: Emulator) -> Emulator:
    with contextlib.closing(emulator.connect_pymssql("master", autocommit=True)) as connection:
        connection.cursor().execute(f"IF DB_ID('{DATABASE}') IS NULL CREATE DATABASE {DATABASE}")
    return emulator


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> Driver:
    driver = DRIVERS[request.param]
    if reason := driver.why_not():
        pytest.skip(reason)
    return driver


@pytest.fixture
def connection(driver: Driver, server: Emulator) -> Iterator[Any]:
    connection = driver.connect(server, DATABASE)
    yield connection
    with contextlib.suppress(Exception):  # a test may have broken it
        connection.rollback()
    connection.close()


@pytest.fixture
def table(server: Emulator) -> str:
    """An empty table (Id int identity primary key, Name nvarchar(50) not null unique)."""
    with contextlib.closing(server.connect_pymssql(DATABASE, autocommit=True)) as admin:
        admin.cursor().execute("DROP TABLE IF EXISTS dbo.Things")
        admin.cursor().execute(
            "CREATE TABLE dbo.Things (Id int IDENTITY PRIMARY KEY, "
            "Name nvarchar(50) NOT NULL CONSTRAINT UQ_Name UNIQUE)"
        )
    return "dbo.Things"
