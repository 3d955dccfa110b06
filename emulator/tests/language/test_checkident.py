"""DBCC CHECKIDENT, as load scripts use it, and scoped configurations, which scripts of whole databases set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance_server import Server, Source, new_database
from emulator_process import Emulator

_DONE = "DBCC execution completed. If DBCC printed error messages, contact your system administrator."


@pytest.fixture(scope="module")
def source(emulator: Emulator) -> Iterator[Source]:
    server = Server(emulator.host, emulator.port, emulator.user, emulator.password, is_emulator=True)
    with new_database(server, with_cdc=False) as made:
        yield made


@pytest.mark.parametrize("declared", ["int", "bigint", "numeric(18, 0)"])
def test_next_value_follows_the_one_that_was_set(source: Source, declared: str) -> None:
    admin, table = source.admin, f"dbo.r_{declared[0]}"
    admin.run(f"CREATE TABLE {table} (id {declared} IDENTITY(1, 5), v int)", f"INSERT {table} VALUES (1), (2)")
    reply = admin.send(f"DBCC CHECKIDENT ('{table}', RESEED, 100)")
    assert [(m.number, m.state, m.text) for m in reply.messages] == [
        (7989, 3, "Checking identity information: current identity value '6'."),
        (2528, 1, _DONE),
    ]
    admin.run(f"INSERT {table} VALUES (3)")
    assert [int(str(row[0])) for row in admin.rows(f"SELECT id FROM {table} ORDER BY id")] == [1, 6, 105]
    admin.run(f"DELETE {table}", f"DBCC CHECKIDENT ({table}, RESEED, 0)", f"INSERT {table} VALUES (4)")
    assert int(str(admin.rows(f"SELECT id FROM {table}")[0][0])) == 5
    admin.run(f"TRUNCATE TABLE {table}", f"DBCC CHECKIDENT ({table}, RESEED, 40)", f"INSERT {table} VALUES (4)")
    assert int(str(admin.rows(f"SELECT id FROM {table}")[0][0])) == 40


def test_counter_that_is_behind_the_column_is_raised(source: Source) -> None:
    admin = source.admin
    admin.run("CREATE TABLE dbo.behind (id int IDENTITY, v int)", "INSERT dbo.behind VALUES (1), (2), (3)")
    admin.run("DBCC CHECKIDENT (behind, RESEED, 1) WITH NO_INFOMSGS")
    message = "Checking identity information: current identity value '1', current column value '3'."
    for statement in ("DBCC CHECKIDENT ('[dbo].[behind]', NORESEED)", "DBCC CHECKIDENT (N'behind', RESEED)"):
        assert [(m.number, m.text) for m in admin.send(statement).messages] == [(7998, message), (2528, _DONE)]
    message = message.replace("value '1'", "value '3'")
    assert admin.send("DBCC CHECKIDENT (behind)").messages[0].text == message
    assert admin.send("DBCC CHECKIDENT (behind) WITH NO_INFOMSGS").messages == []
    admin.run("DECLARE @top int = 50; DBCC CHECKIDENT (behind, RESEED, @top)", "INSERT dbo.behind VALUES (4)")
    assert admin.rows("SELECT MAX(id) FROM dbo.behind") == [(51,)]


def test_counter_that_goes_down_is_compared_with_the_least_value(source: Source) -> None:
    admin = source.admin
    admin.run("CREATE TABLE dbo.down (id int IDENTITY(-1, -1), v int)", "INSERT dbo.down VALUES (1), (2)")
    admin.run("DBCC CHECKIDENT (down, RESEED, 10)", "DBCC CHECKIDENT (down)", "INSERT dbo.down VALUES (3)")
    assert admin.rows("SELECT MIN(id) FROM dbo.down") == [(-3,)]


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("DBCC CHECKIDENT ('absent')", 2501),
        ("DBCC CHECKIDENT (plain)", 7997),
        ("DBCC CHECKIDENT (counted, RESEED, 300)", 2560),
        ("DBCC CHECKIDENT (5)", 2560),
        ("DBCC CHECKIDENT (counted, RESET)", 102),
        ("DBCC CHECKIDENT ('#counted')", 49999),
    ],
)
def test_what_cannot_be_checked_is_refused(source: Source, statement: str, number: int) -> None:
    source.admin.run(
        "IF OBJECT_ID('plain') IS NULL CREATE TABLE dbo.plain (a int)",
        "IF OBJECT_ID('counted') IS NULL CREATE TABLE dbo.counted (a tinyint IDENTITY)",
    )
    assert source.admin.error(statement).number == number


def test_login_without_a_role_may_not_check(source: Source) -> None:
    source.admin.run("CREATE TABLE dbo.guarded (a int IDENTITY)")
    reader = source.log_in("SELECT ON dbo.guarded")
    error = reader.error("DBCC CHECKIDENT ('dbo.guarded', RESEED, 1)")
    assert (error.number, error.severity, error.state) == (2557, 14, 5)
    reader.close()


def test_scoped_configurations_that_change_plans_are_taken(source: Source) -> None:
    """Scripts of whole databases set them so."""
    source.admin.run(
        "ALTER DATABASE SCOPED CONFIGURATION SET LEGACY_CARDINALITY_ESTIMATION = OFF;"
        " ALTER DATABASE SCOPED CONFIGURATION FOR SECONDARY SET LEGACY_CARDINALITY_ESTIMATION = PRIMARY;"
        " ALTER DATABASE SCOPED CONFIGURATION SET MAXDOP = 0 ALTER DATABASE SCOPED CONFIGURATION CLEAR PROCEDURE_CACHE"
    )
