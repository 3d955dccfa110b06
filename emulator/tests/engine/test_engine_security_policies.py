"""Row-level security: filter predicates of security policies, for every login alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from engine_client import Client

PASSWORD = "R3ader!"


@pytest.fixture(scope="module")
def owner(module_client: Client) -> Iterator[Client]:
    module_client.run("CREATE TABLE dbo.sales (id int PRIMARY KEY, rep varchar(20), qty int)")
    module_client.run("CREATE TABLE dbo.other (id int)")
    module_client.run("INSERT INTO dbo.sales VALUES (1, 'north', 5), (2, 'south', 2), (3, 'north', 4)")
    for login in ("north", "south", "manager"):
        module_client.run(f"CREATE LOGIN {login} WITH PASSWORD = '{PASSWORD}'; CREATE USER {login} FOR LOGIN {login}")
        module_client.run(f"ALTER ROLE db_datareader ADD MEMBER {login}; ALTER ROLE db_datawriter ADD MEMBER {login}")
    module_client.run("CREATE SCHEMA sec")
    module_client.run(
        "CREATE FUNCTION sec.passes (@rep AS varchar(20)) RETURNS TABLE WITH SCHEMABINDING AS"
        " RETURN SELECT 1 AS result WHERE @rep = USER_NAME() OR USER_NAME() = 'manager'"
    )
    yield module_client


@pytest.fixture
def policy(owner: Client) -> Iterator[Client]:
    owner.run(
        "CREATE SECURITY POLICY sec.sales_filter ADD FILTER PREDICATE sec.passes(rep) ON dbo.sales WITH (STATE = ON)"
    )
    yield owner
    owner.run("DROP SECURITY POLICY IF EXISTS sec.sales_filter")


def ids(client: Client) -> list[object]:
    return [row[0] for row in client.rows("SELECT id FROM dbo.sales ORDER BY id")]


@pytest.mark.parametrize(("login", "seen"), [("north", [1, 3]), ("south", [2]), ("manager", [1, 2, 3])])
def test_login_sees_only_the_rows_that_pass(
    policy: Client, connect: Callable[..., Client], login: str, seen: list[object]
) -> None:
    assert ids(connect(login, PASSWORD)) == seen


def test_sysadmin_is_filtered_too(policy: Client) -> None:
    assert ids(policy) == []
    assert policy.value("SELECT COUNT(*) FROM dbo.sales AS s JOIN dbo.sales AS t ON t.id = s.id") == 0


def test_policy_that_is_switched_off_hides_nothing(policy: Client, connect: Callable[..., Client]) -> None:
    north = connect("north", PASSWORD)
    assert ids(north) == [1, 3]
    policy.run("ALTER SECURITY POLICY sec.sales_filter WITH (STATE = OFF)")
    assert ids(north) == [1, 2, 3]
    policy.run("ALTER SECURITY POLICY sec.sales_filter WITH (STATE = ON)")
    assert ids(north) == [1, 3]
    policy.run("ALTER SECURITY POLICY sec.sales_filter DROP FILTER PREDICATE ON dbo.sales")
    assert ids(north) == [1, 2, 3]
    policy.run("ALTER SECURITY POLICY sec.sales_filter ADD FILTER PREDICATE sec.passes(rep) ON dbo.sales")
    assert ids(north) == [1, 3]


def test_hidden_rows_are_neither_updated_nor_deleted(policy: Client, connect: Callable[..., Client]) -> None:
    north = connect("north", PASSWORD)
    north.run("BEGIN TRANSACTION")
    assert north.run("UPDATE dbo.sales SET qty = qty + 1").counts == [2]
    assert north.run("UPDATE s SET qty = 0 FROM dbo.sales AS s JOIN dbo.sales AS t ON t.id = s.id").counts == [2]
    assert north.run("DELETE TOP (5) FROM dbo.sales").counts == [2]
    assert north.run("INSERT INTO dbo.sales VALUES (9, 'south', 1)").counts == [1]
    assert ids(north) == []
    north.run("ROLLBACK")


def test_catalog_shows_policies_only_to_users_who_may_see_their_definition(
    policy: Client, connect: Callable[..., Client]
) -> None:
    query = (
        "SELECT p.name, p.is_enabled, r.predicate_definition, r.predicate_type_desc, OBJECT_NAME(r.target_object_id)"
        " FROM sys.security_policies AS p JOIN sys.security_predicates AS r ON r.object_id = p.object_id"
    )
    found = [("sales_filter", 1, "[sec].[passes](rep)", "FILTER", "sales")]
    assert policy.rows(query) == found
    north = connect("north", PASSWORD)
    may = "SELECT HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DEFINITION')"
    assert (north.rows(query), north.value(may)) == ([], 0)
    policy.run("GRANT VIEW DEFINITION TO north")
    try:
        assert (north.rows(query), north.value(may)) == (found, 1)
    finally:
        policy.run("REVOKE VIEW DEFINITION FROM north")


@pytest.mark.parametrize("statement", ["DROP TABLE dbo.sales", "DROP FUNCTION sec.passes"])
def test_what_a_policy_is_made_of_cannot_be_dropped(policy: Client, statement: str) -> None:
    assert policy.error(statement).number == 3729


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE SECURITY POLICY p ADD BLOCK PREDICATE sec.passes(rep) ON dbo.sales", "BLOCK"),
        ("CREATE SECURITY POLICY p ADD FILTER PREDICATE sec.passes(rep) ON dbo.sales", "second"),
        ("MERGE dbo.sales AS t USING dbo.other AS s ON t.id = s.id WHEN MATCHED THEN DELETE;", "MERGE"),
        ("CREATE VIEW dbo.v AS SELECT * FROM dbo.sales", "views"),
        ("CREATE FUNCTION dbo.f () RETURNS TABLE AS RETURN (SELECT id FROM dbo.sales)", "functions"),
    ],
)
def test_what_a_filter_cannot_carry_is_refused_by_name(policy: Client, statement: str, named: str) -> None:
    error = policy.error(statement)
    assert error.number == 49999
    assert named in error.message


def test_filter_over_tables_that_modules_read_is_refused_by_name(owner: Client) -> None:
    owner.run("CREATE TABLE dbo.seen (rep varchar(20))")
    owner.run("CREATE VIEW dbo.sees AS SELECT * FROM dbo.seen")
    error = owner.error("CREATE SECURITY POLICY p ADD FILTER PREDICATE sec.passes(rep) ON dbo.seen")
    assert (error.number, "views" in error.message) == (49999, True)
    owner.run("CREATE FUNCTION sec.reads (@id int) RETURNS TABLE AS RETURN SELECT 1 AS x FROM dbo.other WHERE id = @id")
    error = owner.error("CREATE SECURITY POLICY p ADD FILTER PREDICATE sec.reads(id) ON dbo.sales")
    assert (error.number, "read tables" in error.message) == (49999, True)
