"""Change Tracking where it rests on PostgreSQL's own plans and rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from engine_client import Client
from sqlserver_emulator.assembly.factory import Engine


@pytest.fixture
def tracked(client: Client) -> Iterator[Client]:
    """A connection, and dbo.t (id, a) of 1000 rows, tracked."""
    client.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
    client.run("CREATE TABLE t (id int PRIMARY KEY, a int); ALTER TABLE t ENABLE CHANGE_TRACKING")
    client.run("INSERT t (id) VALUES " + ", ".join(f"({key})" for key in range(1000)))
    yield client
    client.run("DROP TABLE t; ALTER DATABASE CURRENT SET CHANGE_TRACKING = OFF")


def test_serializable_commits_do_not_read_each_other(
    engine: Engine, tracked: Client, connect: Callable[..., Client]
) -> None:
    """PostgreSQL would scan the few rows of the commit table, once their number is known, and see a conflict there."""
    other = connect()
    with psycopg.connect(engine.conninfo, autocommit=True) as postgres:
        postgres.execute("ANALYZE emulator.change_tracking_commits")
    for writer, key in ((tracked, 1), (other, 900)):
        writer.run(f"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN TRAN; UPDATE t SET a = 1 WHERE id = {key}")
    other.run("COMMIT")
    tracked.run("COMMIT")
    assert tracked.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()") == 3


def test_every_login_may_read_whether_tracking_is_on(tracked: Client, connect: Callable[..., Client]) -> None:
    tracked.run("CREATE LOGIN asker WITH PASSWORD = 'Asker-of-switches-1'; CREATE USER asker FOR LOGIN asker")
    asker = connect("asker", "Asker-of-switches-1")
    # The property comes from a row, so that PostgreSQL cannot leave out the parts for other properties.
    value = "SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), property) AS int)"
    assert asker.value(f"{value} FROM (VALUES ('IsChangeTrackingEnabled')) AS v (property)") == 1
