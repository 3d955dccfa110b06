"""Refusals of Change Tracking's queries, by number, and the rights that they need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emulator_process import Emulator
from sql_client import SqlClient


@pytest.fixture(scope="module")
def tables(emulator: Emulator, database: str) -> None:
    connection = emulator.connect_pymssql(database, autocommit=True)
    client = SqlClient(connection)
    client.run("CREATE TABLE t (id int PRIMARY KEY, a int); ALTER TABLE t ENABLE CHANGE_TRACKING")
    client.run("CREATE TABLE u (id int PRIMARY KEY)")
    client.run("CREATE TABLE k (id int, s varchar(5), PRIMARY KEY (id, s)); ALTER TABLE k ENABLE CHANGE_TRACKING")
    client.run("CREATE VIEW v AS SELECT id FROM t")
    connection.close()


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("SELECT * FROM CHANGETABLE(VERSION t, (id, a), (1, 1)) AS x", 22110),
        ("SELECT * FROM CHANGETABLE(VERSION t, (a), (1)) AS x", 22111),
        ("SELECT * FROM CHANGETABLE(VERSION k, (id), (1)) AS x", 22110),
        ("SELECT * FROM CHANGETABLE(VERSION k, (id, id), (1, 1)) AS x", 22112),
        ("SELECT * FROM CHANGETABLE(VERSION k, (id, s), (1)) AS x", 22103),
        ("SELECT * FROM CHANGETABLE(CHANGES t, 0)", 22104),
        ("SELECT * FROM CHANGETABLE(CHANGES u, 0) AS c", 22105),
        ("SELECT * FROM CHANGETABLE(CHANGES v, 0) AS c", 22107),
        ("SELECT * FROM CHANGETABLE(CHANGES sys.objects, 0) AS c", 22107),
        ("SELECT * FROM CHANGETABLE(CHANGES nosuch, 0) AS c", 208),
        ("SELECT * FROM CHANGETABLE(CHANGES t) AS c", 102),
        ("SELECT * FROM CHANGETABLE(CHANGES t, 1.5) AS c", 102),
        ("DECLARE @x int = 0; SELECT * FROM CHANGETABLE(CHANGES t, @x + 1) AS c", 102),
        ("DECLARE @s varchar(5) = 'x'; SELECT * FROM CHANGETABLE(CHANGES t, @s) AS c", 8114),
        ("DECLARE @d datetime = GETDATE(); SELECT * FROM CHANGETABLE(CHANGES t, @d) AS c", 257),
        ("SELECT * FROM CHANGETABLE(foo t, 0) AS c", 102),
        ("SELECT CHANGE_TRACKING_IS_COLUMN_IN_MASK(1, 0x)", 22101),
        ("SELECT CHANGE_TRACKING_IS_COLUMN_IN_MASK(1, 0x00000000)", 22101),
        ("SELECT CHANGE_TRACKING_IS_COLUMN_IN_MASK(1, 1)", 22101),
        ("SELECT CHANGE_TRACKING_IS_COLUMN_IN_MASK(NULL, 0x01)", 8116),
        ("SELECT CHANGE_TRACKING_IS_COLUMN_IN_MASK(CAST(1 AS bigint), 0x0000000001000000)", 8116),
        ("SELECT CHANGE_TRACKING_IS_COLUMN_IN_MASK('a', 0x01)", 8116),
        ("SELECT CHANGE_TRACKING_IS_COLUMN_IN_MASK(1, 'abc')", 257),
        ("SELECT CHANGE_TRACKING_IS_COLUMN_IN_MASK(1)", 174),
        ("SELECT CHANGE_TRACKING_MIN_VALID_VERSION(CAST(1 AS tinyint))", 8116),
        ("SELECT CHANGE_TRACKING_MIN_VALID_VERSION(NULL)", 8116),
        ("SELECT CHANGE_TRACKING_CURRENT_VERSION(1)", 174),
        ("DECLARE @c varbinary(200) = 0x01; WITH CHANGE_TRACKING_CONTEXT (@c) INSERT t VALUES (1, 1)", 22109),
        ("DECLARE @c varbinary(max) = 0x01; WITH CHANGE_TRACKING_CONTEXT (@c) INSERT t VALUES (1, 1)", 22109),
        ("DECLARE @c varchar(10) = 'a'; WITH CHANGE_TRACKING_CONTEXT (@c) INSERT t VALUES (1, 1)", 22109),
        ("WITH CHANGE_TRACKING_CONTEXT ('abc') INSERT t VALUES (1, 1)", 102),
        ("WITH CHANGE_TRACKING_CONTEXT (NULL) INSERT t VALUES (1, 1)", 156),
        ("WITH CHANGE_TRACKING_CONTEXT (CAST(0x01 AS varbinary(1))) INSERT t VALUES (1, 1)", 102),
        ("WITH CHANGE_TRACKING_CONTEXT (0x01) SELECT 1", 22108),
        ("WITH CHANGE_TRACKING_CONTEXT (0x01) EXEC sp_who", 156),
        ("SELECT * FROM sys.syscommittab", 208),
    ],
)
def test_what_is_wrong_is_refused_by_number(client: SqlClient, query: str, number: int) -> None:
    assert client.error(query)[0] == number


@pytest.mark.usefixtures("tables")
def test_table_that_is_not_tracked_is_named_as_written(client: SqlClient) -> None:
    error = client.error("SELECT * FROM CHANGETABLE(CHANGES dbo.u, 0) AS c")
    assert error[0] == 22105
    assert error[1].startswith("Change tracking is not enabled on table 'dbo.u'.")


@pytest.mark.usefixtures("tables")
def test_table_that_is_not_tracked_refuses_the_whole_batch(client: SqlClient) -> None:
    batch = "INSERT u VALUES (1); IF 1 = 0 SELECT * FROM CHANGETABLE(CHANGES u, 0) AS c"
    assert client.error(batch)[0] == 22105
    assert client.value("SELECT COUNT(*) FROM u") == 0


@pytest.mark.usefixtures("tables")
def test_table_that_the_batch_itself_makes_is_searched_for_when_it_is_read(client: SqlClient) -> None:
    batch = "CREATE TABLE made (id int PRIMARY KEY); IF 1 = 0 SELECT * FROM CHANGETABLE(CHANGES made, 0) AS c; SELECT 1"
    assert client.rows(batch) == [(1,)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("2, NULL", True),
        ("1, 0x0000000002000000", False),
        ("2, 0x0000000002000000", True),
        ("-1, 0x00000000ffffffff", True),
        ("1, 0x0000000001000000ff", True),
        ("1, 0x01000000ffffffff", False),
        ("1, CAST(0x0000000001000000 AS binary(12))", True),
        ("@column, @mask", True),
    ],
)
def test_column_in_mask(client: SqlClient, arguments: str, expected: bool) -> None:
    declared = "DECLARE @column int = 7, @mask varbinary(4100) = 0x000000000200000007000000;"
    assert client.value(f"{declared} SELECT CHANGE_TRACKING_IS_COLUMN_IN_MASK({arguments})") is expected


def test_oldest_valid_version_is_null_for_what_is_not_tracked(client: SqlClient) -> None:
    names = ["sys.objects", "u", "nosuch"]
    for name in names:
        assert client.value(f"SELECT CHANGE_TRACKING_MIN_VALID_VERSION(OBJECT_ID('{name}'))") is None


@pytest.fixture
def reader(client: SqlClient, connect: Callable[..., SqlClient], database: str) -> SqlClient:
    """A login that may read dbo.t and nothing else."""
    client.run(
        "IF SUSER_ID('tracking_reader') IS NULL CREATE LOGIN tracking_reader WITH PASSWORD = 'Reader-of-changes-1'"
    )
    client.run(f"USE [{database}]; IF USER_ID('tracking_reader') IS NULL CREATE USER tracking_reader FOR LOGIN"
               " tracking_reader; GRANT SELECT ON t TO tracking_reader")  # fmt: skip
    client.run("REVOKE VIEW CHANGE TRACKING ON t FROM tracking_reader")
    return connect(user="tracking_reader", password="Reader-of-changes-1")


@pytest.mark.usefixtures("tables")
def test_changes_take_the_right_to_see_them(client: SqlClient, reader: SqlClient, database: str) -> None:
    query, version = "SELECT id FROM CHANGETABLE(CHANGES t, -1) AS c", "CHANGE_TRACKING_MIN_VALID_VERSION"
    message = f"The VIEW CHANGE TRACKING permission was denied on the object 't', database '{database}', schema 'dbo'."
    number, text = reader.error(query)
    assert (number, text[: len(message)]) == (229, message)
    assert reader.error("SELECT * FROM CHANGETABLE(VERSION t, (id), (1)) AS c")[0] == 229
    assert reader.value(f"SELECT {version}(OBJECT_ID('t'))") is None
    assert reader.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()") is not None
    client.run("GRANT VIEW CHANGE TRACKING ON t TO tracking_reader")
    assert reader.rows(query) == []
    assert reader.value(f"SELECT {version}(OBJECT_ID('t'))") is not None
    client.run("DENY VIEW CHANGE TRACKING ON t TO tracking_reader")
    assert reader.error(query)[0] == 229


@pytest.mark.usefixtures("tables")
def test_has_perms_by_name_knows_the_right(client: SqlClient, reader: SqlClient) -> None:
    asked = (
        "SELECT HAS_PERMS_BY_NAME(N'dbo.t', N'OBJECT', N'VIEW CHANGE TRACKING'),"
        " HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW CHANGE TRACKING')"
    )
    assert reader.rows(asked) == [(0, 0)]
    client.run("GRANT VIEW CHANGE TRACKING ON t TO tracking_reader")
    assert reader.rows(asked) == [(1, 0)]
    client.run("DENY VIEW CHANGE TRACKING ON t TO tracking_reader; GRANT VIEW CHANGE TRACKING TO tracking_reader")
    assert reader.rows(asked) == [(0, 1)]
    assert client.rows(asked) == [(1, 1)]
    client.run("REVOKE VIEW CHANGE TRACKING FROM tracking_reader")


@pytest.mark.usefixtures("tables")
def test_changes_take_the_right_to_read_the_key(client: SqlClient, reader: SqlClient) -> None:
    client.run("GRANT VIEW CHANGE TRACKING ON SCHEMA::dbo TO tracking_reader")
    assert reader.rows("SELECT id FROM CHANGETABLE(CHANGES t, 0) AS c") == []
    error = reader.error("SELECT id FROM CHANGETABLE(CHANGES k, 0) AS c")
    assert error[0] == 229
    assert error[1].startswith("The SELECT permission was denied on the object 'k'")
    client.run("REVOKE VIEW CHANGE TRACKING ON SCHEMA::dbo FROM tracking_reader")


@pytest.mark.usefixtures("tables")
def test_writer_without_rights_on_changes_is_tracked(client: SqlClient, reader: SqlClient) -> None:
    client.run("GRANT INSERT, UPDATE, DELETE ON t TO tracking_reader")
    before = client.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    reader.run("INSERT t VALUES (77, 1); UPDATE t SET a = 2 WHERE id = 77")
    rows = client.rows(f"SELECT id, SYS_CHANGE_VERSION - {before} FROM CHANGETABLE(CHANGES t, {before}) AS c")
    assert rows == [(77, 2)]
