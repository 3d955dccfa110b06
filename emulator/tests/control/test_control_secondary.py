"""A readable secondary: what it shows, what it refuses, how clients are led to it, and how it lags on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pymssql
import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator, running_emulator

_SERVER = "CAST(SERVERPROPERTY('ServerName') AS nvarchar(128))"
_UPDATEABILITY = "CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(20))"
_GROUP = "(SELECT group_database_id FROM sys.databases WHERE name = DB_NAME())"
Open = Callable[[], CdcDatabase]


@pytest.fixture(scope="module")
def group(open_dir: Path) -> Iterator[Emulator]:
    """An emulator with a secondary."""
    with running_emulator(open_dir / "group", "--capture-interval", "0.1", "--secondary-port", "0") as running:
        yield running


@pytest.fixture
def primary(group: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(group) as database:
        database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", "INSERT INTO dbo.t VALUES (1)")
        yield database
        database.run("EXEC emulator.reset")


@pytest.fixture
def open_secondary(group: Emulator, primary: CdcDatabase) -> Iterator[Open]:
    """Opens sessions with the secondary, which end with the test."""
    with ExitStack() as opened:

        def open_session() -> CdcDatabase:
            connection = pymssql.connect(
                server=group.host,
                port=str(group.secondary_port),
                user=group.user,
                password=group.password,
                database=primary.name,
                autocommit=True,
            )
            return CdcDatabase(primary.name, opened.enter_context(connection))

        yield open_session


def test_secondary_shows_what_is_committed(primary: CdcDatabase, open_secondary: Open) -> None:
    primary.run("BEGIN TRAN", "INSERT INTO dbo.t VALUES (2)")
    assert open_secondary().scalar("(SELECT COUNT(*) FROM dbo.t)") == 1
    primary.run("COMMIT")
    assert open_secondary().scalar("(SELECT COUNT(*) FROM dbo.t)") == 2


def test_held_secondary_lags_until_it_is_released(primary: CdcDatabase, open_secondary: Open) -> None:
    primary.enable("t")
    primary.run("EXEC emulator.hold_secondary")
    before = open_secondary().scalar("sys.fn_cdc_get_max_lsn()")
    primary.run("INSERT INTO dbo.t VALUES (2)", "CREATE TABLE dbo.later (id int)")
    primary.scan()
    held = open_secondary()
    assert held.scalar("(SELECT COUNT(*) FROM dbo.t)") == 1
    assert held.scalar("sys.fn_cdc_get_max_lsn()") == before < primary.scalar("sys.fn_cdc_get_max_lsn()")
    assert held.change_table("dbo_t") == []
    assert held.error_of("SELECT id FROM dbo.later") == 208
    primary.run("EXEC emulator.release_secondary")
    assert held.scalar("(SELECT COUNT(*) FROM dbo.t)") == 1, "a session keeps its state"
    released = open_secondary()
    assert released.query("SELECT id FROM dbo.later") == []
    assert released.scalar("sys.fn_cdc_get_max_lsn()") == primary.scalar("sys.fn_cdc_get_max_lsn()")
    assert [row["id"] for row in released.change_table("dbo_t")] == [2]


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("INSERT INTO dbo.t VALUES (2)", 3906),
        ("UPDATE dbo.t SET id = 2", 3906),
        ("TRUNCATE TABLE dbo.t", 3906),
        ("CREATE TABLE dbo.u (id int)", 3906),
        ("SELECT id INTO dbo.u FROM dbo.t", 3906),
        ("EXEC sp_rename N'dbo.t', N'u'", 3906),
        ("CREATE TABLE #u (id int)", 49999),
        ("SELECT id INTO #u FROM dbo.t", 49999),
    ],
)
def test_secondary_refuses_what_writes(open_secondary: Open, statement: str, number: int) -> None:
    secondary = open_secondary()
    for _ in range(2):
        assert secondary.error_of(statement) == number
        # The savepoint after a failed statement must not let the next one write.
        assert secondary.error_of("DELETE FROM dbo.t") == 3906
    secondary.run("BEGIN TRAN")
    assert secondary.error_of(statement) == number
    secondary.run("ROLLBACK")
    assert secondary.query("SELECT id FROM dbo.t") == [{"id": 1}]


def test_secondary_has_table_variables(open_secondary: Open) -> None:
    secondary = open_secondary()
    for _ in range(2):
        assert secondary.query(
            "DECLARE @t TABLE (n int IDENTITY, id int); INSERT INTO @t (id) SELECT id FROM dbo.t;"
            " INSERT INTO @t (id) VALUES (7); DELETE FROM @t WHERE id = 1; SELECT n, id FROM @t"
        ) == [{"n": 2, "id": 7}]
    assert secondary.error_of("DELETE FROM dbo.t") == 3906


def test_secondary_is_another_server_of_one_group(primary: CdcDatabase, open_secondary: Open) -> None:
    here, there = (
        session.query(f"SELECT {_SERVER} AS server, {_UPDATEABILITY} AS state, {_GROUP} AS grp, SUSER_SNAME() AS login")
        for session in (primary, open_secondary())
    )
    assert here[0]["server"] != there[0]["server"]
    assert (here[0]["state"], there[0]["state"]) == ("READ_WRITE", "READ_ONLY")
    assert here[0]["grp"] == there[0]["grp"] is not None
    assert there[0]["login"] == "sa"


@pytest.mark.parametrize("encrypt", ["yes", "no", "strict"])
def test_driver_that_only_reads_is_led_to_the_secondary(group: Emulator, primary: CdcDatabase, encrypt: str) -> None:
    def server(database: str) -> Any:
        with group.connect_mssql_python(database, encrypt=encrypt) as connection, connection.cursor() as cursor:
            return cursor.execute(f"SELECT {_UPDATEABILITY}").fetchone()[0]

    assert server(f"{primary.name};ApplicationIntent=ReadOnly") == "READ_ONLY"
    assert server(primary.name) == "READ_WRITE"
    assert server("master;ApplicationIntent=ReadOnly") == "READ_WRITE", "master is in no availability group"


def test_db_library_that_only_reads_is_led_to_the_secondary(group: Emulator, primary: CdcDatabase) -> None:
    with group.connect_pymssql(primary.name, read_only=True) as connection:
        assert CdcDatabase(primary.name, connection).scalar(_UPDATEABILITY) == "READ_ONLY"


def test_emulator_without_a_secondary_says_so(controlled_emulator: Emulator) -> None:
    assert controlled_emulator.secondary_port is None
    with controlled_emulator.connect_pymssql(autocommit=True, read_only=True) as connection:
        test = CdcDatabase("Test", connection)
        assert test.error_of("EXEC emulator.hold_secondary") == 49998
        assert test.query(f"SELECT {_UPDATEABILITY} AS state, {_GROUP} AS grp") == [
            {"state": "READ_WRITE", "grp": None}
        ]
