"""Every way in which rows are written is tracked: bulk load, triggers, views, other databases, other levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymssql
import pytest

from emulator_process import Emulator, running_emulator
from sql_client import SqlClient


def _version(client: SqlClient) -> int:
    found: int = client.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    return found


def _changes(client: SqlClient, after: int, table: str = "t") -> list[tuple[Any, ...]]:
    return client.rows(
        f"SELECT id, SYS_CHANGE_OPERATION, SYS_CHANGE_VERSION - {after} FROM CHANGETABLE(CHANGES {table}, {after}) AS c"
        " ORDER BY id"
    )


def test_bulk_load_is_one_version(tracked: SqlClient) -> None:
    tracked.run("WITH CHANGE_TRACKING_CONTEXT (0x09) INSERT t (id) VALUES (0)")
    base = _version(tracked)
    tracked.connection.bulk_copy("t", [(1, 1, 1, 1), (2, 2, 2, 2)])
    assert _changes(tracked, base) == [(1, "I", 1), (2, "I", 1)]
    contexts = tracked.rows(f"SELECT DISTINCT SYS_CHANGE_CONTEXT FROM CHANGETABLE(CHANGES t, {base}) AS c")
    assert contexts == [(None,)]


def test_rows_that_an_instead_of_trigger_takes_are_no_change(tracked: SqlClient) -> None:
    tracked.run("CREATE TRIGGER takes ON t INSTEAD OF INSERT AS INSERT t SELECT id + 100, a, b, c FROM inserted")
    base = _version(tracked)
    tracked.run("INSERT t VALUES (1, 1, 1, 1)")
    assert _changes(tracked, base) == [(101, "I", 1)]


def test_trigger_of_the_table_itself_merges_with_its_statement_and_has_no_context(tracked: SqlClient) -> None:
    tracked.run("CREATE TRIGGER stamps ON t AFTER INSERT AS UPDATE t SET a = 7 FROM t JOIN inserted i ON i.id = t.id")
    base = _version(tracked)
    tracked.run("WITH CHANGE_TRACKING_CONTEXT (0x09) INSERT t VALUES (1, 1, 1, 1)")
    assert _changes(tracked, base) == [(1, "I", 1)]
    assert tracked.value(f"SELECT SYS_CHANGE_CONTEXT FROM CHANGETABLE(CHANGES t, {base}) AS c") is None


def test_context_of_one_statement_is_not_that_of_the_next(tracked: SqlClient) -> None:
    base = _version(tracked)
    tracked.run("WITH CHANGE_TRACKING_CONTEXT (0x09) INSERT t (id) VALUES (1)")
    tracked.run("INSERT t (id) VALUES (2)")
    tracked.run("WITH CHANGE_TRACKING_CONTEXT (0x0A) INSERT t (id) VALUES (3)")
    rows = tracked.rows(f"SELECT id, SYS_CHANGE_CONTEXT FROM CHANGETABLE(CHANGES t, {base}) AS c ORDER BY id")
    assert rows == [(1, b"\x09"), (2, None), (3, b"\x0a")]


def test_context_of_a_statement_that_fails_is_gone(tracked: SqlClient) -> None:
    base = _version(tracked)
    tracked.run("BEGIN TRAN; INSERT t (id) VALUES (1)")
    assert tracked.error("WITH CHANGE_TRACKING_CONTEXT (0x09) INSERT t (id) VALUES (1)")[0] == 2627
    tracked.run("INSERT t (id) VALUES (2); COMMIT")
    rows = tracked.rows(f"SELECT id, SYS_CHANGE_CONTEXT FROM CHANGETABLE(CHANGES t, {base}) AS c ORDER BY id")
    assert rows == [(1, None), (2, None)]


def test_writes_through_views_and_derived_tables(tracked: SqlClient) -> None:
    tracked.run("DROP VIEW IF EXISTS through")
    tracked.run("CREATE VIEW through AS SELECT id, a FROM t")
    base = _version(tracked)
    tracked.run("INSERT t (id) VALUES (1), (2)")
    tracked.run("UPDATE through SET a = 5 WHERE id = 1; WITH d AS (SELECT * FROM t WHERE id = 2) DELETE d")
    assert _changes(tracked, base) == [(1, "I", 2), (2, "D", 3)]
    assert tracked.error("SELECT * FROM CHANGETABLE(CHANGES through, 0) AS c")[0] == 22107


def test_transaction_over_two_databases_has_a_version_in_each(tracked: SqlClient, database: str) -> None:
    tracked.run("USE master; DROP DATABASE IF EXISTS second_one; CREATE DATABASE second_one")
    tracked.run("USE second_one; ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
    tracked.run("CREATE TABLE other (id int PRIMARY KEY); ALTER TABLE other ENABLE CHANGE_TRACKING")
    tracked.run(f"USE [{database}]")
    base = _version(tracked)
    tracked.run("BEGIN TRAN; INSERT t (id) VALUES (1); INSERT second_one.dbo.other VALUES (2); COMMIT")
    tracked.run("INSERT second_one.dbo.other VALUES (3)")
    assert _version(tracked) == base + 1
    assert tracked.rows("SELECT id, SYS_CHANGE_VERSION FROM CHANGETABLE(CHANGES second_one.dbo.other, 0) AS c") == [
        (2, 1),
        (3, 2),
    ]
    tracked.run("USE second_one")
    assert _version(tracked) == 2


def test_serializable_and_repeatable_transactions(tracked: SqlClient) -> None:
    base = _version(tracked)
    for key, level in enumerate(("REPEATABLE READ", "SERIALIZABLE", "READ UNCOMMITTED"), 1):
        tracked.run(f"SET TRANSACTION ISOLATION LEVEL {level}; BEGIN TRAN; INSERT t (id) VALUES ({key}); COMMIT")
    tracked.run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert _changes(tracked, base) == [(1, "I", 1), (2, "I", 2), (3, "I", 3)]


def test_version_of_a_row_is_found_by_a_key_in_another_spelling(client: SqlClient) -> None:
    client.run("CREATE TABLE by_name (name nvarchar(20) PRIMARY KEY, v int); INSERT by_name VALUES (N'before', 0)")
    client.run("ALTER TABLE by_name ENABLE CHANGE_TRACKING")
    base = _version(client)
    client.run("INSERT by_name VALUES (N'Ä b', 1)")
    query = "SELECT SYS_CHANGE_VERSION - {}, name FROM CHANGETABLE(VERSION by_name, (name), ({})) AS v"
    assert client.rows(query.format(base, "N'ä B  '")) == [(1, "Ä b")]
    assert client.rows(query.format(base, "'BEFORE'")) == [(None, "before")]
    assert client.rows(query.format(base, "'nobody'")) == []


def test_key_that_is_computed(client: SqlClient) -> None:
    client.run("CREATE TABLE computed (id AS n * 10 PERSISTED NOT NULL PRIMARY KEY, n int NOT NULL, v int)")
    client.run("ALTER TABLE computed ENABLE CHANGE_TRACKING WITH (TRACK_COLUMNS_UPDATED = ON)")
    base = _version(client)
    client.run("INSERT computed (n, v) VALUES (1, 1), (2, 2)")
    client.run("UPDATE computed SET n = 5 WHERE n = 1; UPDATE computed SET v = 5 WHERE n = 2")
    assert _changes(client, base + 1, "computed") == [(10, "D", 1), (20, "U", 2), (50, "I", 1)]


@pytest.fixture(scope="module")
def group(open_dir: Path) -> Iterator[Emulator]:
    """An emulator with a secondary."""
    with running_emulator(open_dir / "tracking-group", "--secondary-port", "0") as running:
        yield running


def test_readable_secondary_has_no_change_tracking(group: Emulator) -> None:
    primary = SqlClient(group.connect_pymssql("Test", autocommit=True))
    primary.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
    primary.run("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE CHANGE_TRACKING; INSERT t VALUES (1)")
    login = {"user": group.user, "password": group.password, "database": "Test", "autocommit": True}
    secondary = SqlClient(pymssql.connect(server=group.host, port=str(group.secondary_port), **login))
    for query in (
        "SELECT * FROM CHANGETABLE(CHANGES t, 0) AS c",
        "SELECT * FROM CHANGETABLE(VERSION t, (id), (1)) AS v",
        "SELECT CHANGE_TRACKING_CURRENT_VERSION()",
        "SELECT CHANGE_TRACKING_MIN_VALID_VERSION(OBJECT_ID('t'))",
    ):
        assert secondary.error(query)[0] == 22117
    assert secondary.rows("SELECT id FROM t") == [(1,)]


def test_owner_of_the_database_sees_changes(connect: Callable[..., SqlClient], tracked: SqlClient) -> None:
    tracked.run("IF SUSER_ID('tracking_owner') IS NULL CREATE LOGIN tracking_owner WITH PASSWORD = 'Owner-of-rows-1'")
    tracked.run("CREATE USER tracking_owner FOR LOGIN tracking_owner; ALTER ROLE db_owner ADD MEMBER tracking_owner")
    owner = connect(user="tracking_owner", password="Owner-of-rows-1")
    base = _version(owner)
    owner.run("INSERT t (id) VALUES (1)")
    assert _changes(owner, base) == [(1, "I", 1)]
    owner.run("ALTER TABLE t DISABLE CHANGE_TRACKING; ALTER TABLE t ENABLE CHANGE_TRACKING")


def test_views_functions_and_procedures_read_changes(tracked: SqlClient) -> None:
    base = _version(tracked)
    tracked.run("DROP VIEW IF EXISTS seen; DROP PROCEDURE IF EXISTS asked; DROP FUNCTION IF EXISTS given")
    source = "SELECT c.id FROM CHANGETABLE(CHANGES dbo.t, {}) AS c"
    tracked.run(f"CREATE VIEW seen AS {source.format(base)}")
    tracked.run(f"CREATE PROCEDURE asked @v bigint AS {source.format('@v')}")
    tracked.run(f"CREATE FUNCTION given (@v bigint) RETURNS TABLE AS RETURN {source.format('@v')}")
    tracked.run("INSERT t (id) VALUES (1); ALTER TABLE t ADD more int; EXEC sp_rename 't.a', 'first', 'COLUMN'")
    for query in ("SELECT * FROM seen", f"EXEC asked {base}", f"SELECT * FROM given({base})"):
        assert tracked.rows(query) == [(1,)]
    tracked.run("ALTER TABLE t DISABLE CHANGE_TRACKING")
    assert tracked.error(f"EXEC asked {base}")[0] == 22105
    tracked.run("ALTER TABLE t ENABLE CHANGE_TRACKING; ALTER TABLE t DROP COLUMN more; INSERT t (id) VALUES (2)")
    assert tracked.rows("SELECT * FROM seen") == [(2,)]
