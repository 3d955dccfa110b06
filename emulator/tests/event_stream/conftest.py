"""One emulator with streams for each module, and a database with a stream for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlserver_emulator.assembly.factory import Engine, StreamDestination, open_engine
from sqlserver_emulator.release import SQL_SERVER_2025
from stream_source import PASSWORD, SETUP, Source

PARTITIONS = 3


@pytest.fixture(scope="module")
def engine(open_dir: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    destination = StreamDestination(open_dir / "hubs", PARTITIONS)
    with open_engine(
        open_dir / request.module.__name__, ["Shop"], PASSWORD, destination=destination, release=SQL_SERVER_2025
    ) as opened:
        yield opened


@pytest.fixture
def source(engine: Engine, open_dir: Path) -> Iterator[Source]:
    session = engine.open_session(login="sa", password=PASSWORD, database="Shop", application="test")
    made = Source(engine, session, open_dir / "hubs")
    made.run(*SETUP)
    yield made
    made.run("IF @@TRANCOUNT > 0 ROLLBACK", "EXEC sys.sp_disable_event_stream", "DROP TABLE IF EXISTS dbo.a, dbo.b")
    session.close()
