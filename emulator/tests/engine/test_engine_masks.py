"""Dynamic data masking: what a login without UNMASK reads, and who reads through."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

from engine_client import Client

PASSWORD = "R3ader!"
REAL = (1, "Roberto", "555.123.4567", "RTamburello@contoso.com", 10)


@pytest.fixture(scope="module")
def owner(module_client: Client) -> Iterator[Client]:
    module_client.run(
        "CREATE TABLE dbo.members (id int PRIMARY KEY, first_name varchar(100) MASKED WITH (FUNCTION = 'partial(1,"
        " \"xxxxx\", 1)') NULL, phone varchar(12) MASKED WITH (FUNCTION = 'default()') NULL,"
        " email varchar(100) MASKED WITH (FUNCTION = 'email()') NOT NULL,"
        " code smallint MASKED WITH (FUNCTION = 'random(101, 200)') NULL)"
    )
    module_client.run(
        "INSERT INTO dbo.members VALUES (1, 'Roberto', '555.123.4567', 'RTamburello@contoso.com', 10),"
        " (2, NULL, NULL, 'ZMu@contoso.net', NULL), (3, 'Jo', '', 'a', 5)"
    )
    for login in ("masked", "unmasked", "part", "boss", "denied"):
        module_client.run(f"CREATE LOGIN {login} WITH PASSWORD = '{PASSWORD}'; CREATE USER {login} FOR LOGIN {login}")
        module_client.run(f"ALTER ROLE db_datareader ADD MEMBER {login}; GRANT UPDATE ON dbo.members TO {login}")
    module_client.run("GRANT UNMASK TO unmasked; GRANT UNMASK TO denied; DENY UNMASK TO denied")
    module_client.run("GRANT UNMASK ON dbo.members (email) TO part; ALTER ROLE db_owner ADD MEMBER boss")
    yield module_client


@pytest.fixture
def reader(owner: Client, connect: Callable[..., Client]) -> Client:
    return connect("masked", PASSWORD)


def test_each_function_masks_in_its_way(reader: Client) -> None:
    first, second, third = reader.rows("SELECT * FROM dbo.members ORDER BY id")
    assert first[:4] == (1, "Rxxxxxo", "xxxx", "RXXX@XXXX.com")
    assert isinstance(first[4], int)
    assert 101 <= first[4] <= 200
    assert second == (2, None, None, "ZXXX@XXXX.com", None)
    assert third[1] == "xxxxx", "a value that prefix and suffix would show whole"
    assert reader.types("SELECT phone, email FROM dbo.members")["phone"].length == 12


@pytest.mark.parametrize("login", ["unmasked", "boss"])
def test_login_with_unmask_and_db_owner_read_through(owner: Client, connect: Callable[..., Client], login: str) -> None:
    assert connect(login, PASSWORD).rows("SELECT * FROM dbo.members WHERE id = 1") == [REAL]
    assert owner.rows("SELECT * FROM dbo.members WHERE id = 1") == [REAL]


def test_unmask_of_a_column_shows_only_that_one_and_deny_wins(owner: Client, connect: Callable[..., Client]) -> None:
    one = connect("part", PASSWORD).rows("SELECT phone, email FROM dbo.members WHERE id = 1")
    assert one == [("xxxx", "RTamburello@contoso.com")]
    other = connect("denied", PASSWORD).rows("SELECT phone, email FROM dbo.members WHERE id = 1")
    assert other == [("xxxx", "RXXX@XXXX.com")]


def test_right_that_is_granted_or_revoked_holds_for_open_sessions(owner: Client, reader: Client) -> None:
    query = "SELECT phone FROM dbo.members WHERE id = 1"
    assert reader.value(query) == "xxxx"
    owner.run("GRANT UNMASK ON dbo.members TO masked")
    try:
        assert reader.value(query) == "555.123.4567"
    finally:
        owner.run("REVOKE UNMASK ON dbo.members FROM masked")
    assert reader.value(query) == "xxxx"


def test_conditions_and_order_use_the_real_values(reader: Client) -> None:
    assert reader.rows("SELECT id, email FROM dbo.members WHERE email LIKE '%contoso.net'") == [(2, "ZXXX@XXXX.com")]
    assert [row[1] for row in reader.rows("SELECT code, id FROM dbo.members WHERE code > 0 ORDER BY code")] == [3, 1]


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("UPPER(email)", "xxxx"),
        ("code + 1", 0),
        ("CONVERT(varchar(2), phone)", "xx"),
        ("(SELECT email)", "xxxx"),
        ("CASE WHEN email LIKE 'R%' THEN id ELSE id END", 0),
        ("id + 1", 2),
        ("(SELECT MAX(id) FROM dbo.members WHERE email > '')", 3),
    ],
)
def test_expression_over_a_masked_column_has_the_default_mask(reader: Client, expression: str, shown: object) -> None:
    assert reader.value(f"SELECT {expression} FROM dbo.members WHERE id = 1") == shown


@pytest.mark.parametrize(
    "query",
    [
        "SELECT d.email FROM (SELECT email FROM dbo.members WHERE id = 1) AS d",
        "WITH c AS (SELECT email AS e FROM dbo.members WHERE id = 1) SELECT e FROM c",
        "SELECT DISTINCT email FROM dbo.members WHERE id = 1",
        "SELECT TOP 1 email FROM dbo.members WHERE id = 1 GROUP BY email",
        "SELECT email FROM dbo.members WHERE id = 1 UNION ALL SELECT email FROM dbo.members WHERE id = 0",
        "SELECT m.email FROM dbo.members AS m JOIN dbo.members AS n ON n.email = m.email WHERE n.id = 1",
        "EXEC sp_executesql N'SELECT email FROM dbo.members WHERE id = @id', N'@id int', @id = 1",
        "DECLARE @e varchar(100); SELECT @e = email FROM dbo.members WHERE id = 1; SELECT @e",
        "SELECT email INTO #copy FROM dbo.members WHERE id = 1; SELECT email FROM #copy",
    ],
)
def test_mask_follows_the_column_out_of_inner_queries(reader: Client, query: str) -> None:
    assert reader.value(query) == "RXXX@XXXX.com"


@pytest.mark.parametrize(
    "query",
    [
        "DECLARE @e varchar(100) = (SELECT email FROM dbo.members WHERE id = 1); SELECT @e",
        "SELECT v.e FROM (VALUES ((SELECT email FROM dbo.members WHERE id = 1))) AS v(e)",
        "SELECT TOP 1 s.value FROM dbo.members CROSS APPLY STRING_SPLIT(email, '@') AS s WHERE id = 1",
    ],
)
def test_value_made_from_a_masked_one_is_masked(reader: Client, query: str) -> None:
    assert reader.value(query) == "xxxx"


def test_json_of_masked_columns_has_the_masks(reader: Client) -> None:
    text = reader.value("SELECT id, email FROM dbo.members WHERE id = 1 FOR JSON PATH")
    assert text == '[{"id":1,"email":"RXXX@XXXX.com"}]'


def test_default_mask_of_every_family(owner: Client, reader: Client) -> None:
    owner.run(
        "CREATE TABLE dbo.kinds (b bit MASKED WITH (FUNCTION = 'default()'), i bigint, d decimal(9, 2), f float,"
        " m money, c2 char(2), n nvarchar(max), dt datetime, d2 datetime2(3), da date, ti time(0), o datetimeoffset(0),"
        " vb varbinary(20), g uniqueidentifier)"
    )
    for name in ("i", "d", "f", "m", "c2", "n", "dt", "d2", "da", "ti", "o", "vb", "g"):
        owner.run(f"ALTER TABLE dbo.kinds ALTER COLUMN {name} ADD MASKED WITH (FUNCTION = 'default()')")
    owner.run(
        "INSERT INTO dbo.kinds VALUES (1, 2, 3.5, 4.5, 5, 'ab', N'text', '2024-01-02', '2024-01-02', '2024-01-02',"
        " '10:11:12', '2024-01-02T03:04:05+02:00', 0x010203, NEWID())"
    )
    row = reader.rows("SELECT b, i, d, f, m, c2, n, dt, d2, da, ti, vb FROM dbo.kinds")[0]
    old = datetime.datetime(1900, 1, 1)
    assert row == (0, 0, Decimal("0.00"), 0.0, Decimal(0), "xx", "xxxx", old, old, old.date(), datetime.time(0), b"\0")
    assert str(reader.value("SELECT CAST(g AS varchar(36)) FROM dbo.kinds")) == "xxxx"
    assert reader.value("SELECT COUNT(*) FROM dbo.kinds WHERE o > '2024-01-01'") == 1


def test_catalog_shows_masks_to_users_who_see_the_table(owner: Client, reader: Client) -> None:
    masks = reader.rows(
        "SELECT c.name, c.masking_function, c.is_masked FROM sys.masked_columns AS c"
        " WHERE c.object_id = OBJECT_ID(N'dbo.members') ORDER BY c.column_id"
    )
    assert masks[0] == ("first_name", 'partial(1, "xxxxx", 1)', 1)
    assert [name for name, _, _ in masks] == ["first_name", "phone", "email", "code"]
    assert (
        reader.value("SELECT is_masked FROM sys.columns WHERE object_id = OBJECT_ID('dbo.members') AND name='id'") == 0
    )


def test_has_perms_by_name_knows_unmask(owner: Client, connect: Callable[..., Client]) -> None:
    query = (
        "SELECT HAS_PERMS_BY_NAME(N'dbo.members', N'OBJECT', N'UNMASK', N'email', N'COLUMN'),"
        " HAS_PERMS_BY_NAME(N'dbo.members', N'OBJECT', N'UNMASK', N'phone', N'COLUMN'),"
        " HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'UNMASK')"
    )
    answers = {login: connect(login, PASSWORD).rows(query)[0] for login in ("masked", "part", "unmasked", "boss")}
    assert answers == {"masked": (0, 0, 0), "part": (1, 0, 0), "unmasked": (1, 1, 1), "boss": (1, 1, 1)}


def test_mask_is_changed_and_dropped(owner: Client, reader: Client) -> None:
    owner.run("CREATE TABLE dbo.changing (a varchar(20), b int)")
    owner.run("INSERT INTO dbo.changing VALUES ('secret', 7)")
    assert reader.value("SELECT a FROM dbo.changing") == "secret"
    owner.run("ALTER TABLE dbo.changing ALTER COLUMN a ADD MASKED WITH (FUNCTION = 'default()')")
    assert reader.value("SELECT a FROM dbo.changing") == "xxxx"
    owner.run("ALTER TABLE dbo.changing ALTER COLUMN a varchar(30) MASKED WITH (FUNCTION = 'partial(2,\"-\",0)')")
    assert reader.value("SELECT a FROM dbo.changing") == "se-"
    owner.run("ALTER TABLE dbo.changing ALTER COLUMN a DROP MASKED")
    assert reader.value("SELECT a FROM dbo.changing") == "secret"
    assert owner.error("ALTER TABLE dbo.changing ALTER COLUMN b ADD MASKED WITH (FUNCTION = 'email()')").number == 16003
    assert owner.error("ALTER TABLE dbo.changing ALTER COLUMN c DROP MASKED").number == 4924


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT email FROM dbo.shown_members",
        "SELECT email FROM dbo.find_members(1)",
        "UPDATE dbo.members SET code = code OUTPUT deleted.email WHERE id = 1",
        "SELECT p.[1] FROM (SELECT id, email FROM dbo.members) AS s PIVOT (MAX(email) FOR id IN ([1])) AS p",
    ],
)
def test_masks_that_cannot_be_carried_are_refused_by_name(owner: Client, reader: Client, statement: str) -> None:
    owner.run(
        "IF OBJECT_ID('dbo.shown_members') IS NULL EXEC('CREATE VIEW dbo.shown_members AS SELECT * FROM dbo.members')"
    )
    owner.run(
        "IF OBJECT_ID('dbo.find_members') IS NULL EXEC('CREATE FUNCTION dbo.find_members (@id int) RETURNS TABLE AS"
        " RETURN (SELECT email FROM dbo.members WHERE id = @id)')"
    )
    error = reader.error(statement)
    assert error.number == 49999
    assert "masked columns" in error.message


@pytest.mark.parametrize("mask", ['datetime("Y")', "partial(1)", "random(1)", "nothing"])
def test_unknown_masking_function_is_refused_by_name(owner: Client, mask: str) -> None:
    error = owner.error(f"CREATE TABLE dbo.refused (a int MASKED WITH (FUNCTION = '{mask}'))")
    assert error.number in (49999, 16003)
