"""The real engine without the wire: one for the whole folder, a database for each module, clients for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine_client import SA_PASSWORD, Client
from sqlserver_emulator.assembly.factory import Engine, open_engine
from sqlserver_emulator.session import Session


@pytest.fixture(scope="session")
def engine(shared_dir: Path) -> Iterator[Engine]:
    with open_engine(shared_dir / "engine", sa_password=SA_PASSWORD) as opened:
        yield opened


@pytest.fixture(scope="module")
def database(engine: Engine, request: pytest.FixtureRequest) -> str:
    """A database for the module, named like it."""
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_engine_")
    session = engine.open_session(login="sa", password=SA_PASSWORD, database="master", application="test")
    Client(session).run(f"CREATE DATABASE [{name}]")
    session.close()
    return name


@pytest.fixture(scope="module")
def module_client(engine: Engine, database: str) -> Iterator[Client]:
    """For what a module's tests share."""
    session = engine.open_session(login="sa", password=SA_PASSWORD, database=database, application="test")
    yield Client(session)
    session.close()


@pytest.fixture
def connect(engine: Engine, database: str) -> Iterator[Callable[..., Client]]:
    """Opens clients of the module's database; ``login`` and ``password`` may be given."""
    opened: list[Session] = []

    def open_client(login: str = "sa", password: str = SA_PASSWORD, database: str = database) -> Client:
        opened.append(engine.open_session(login=login, password=password, database=database, application="test"))
        return Client(opened[-1])

    yield open_client
    for session in opened:
        session.close()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    return connect()
