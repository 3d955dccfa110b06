"""Logins, users, roles and rights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from engine_client import SA_PASSWORD, Client
from sqlserver_emulator.assembly.factory import Engine
from sqlserver_emulator.errors import SqlServerError

PASSWORD = "R3ader!"


def _make_reader(client: Client, name: str) -> None:
    client.run(f"CREATE LOGIN {name} WITH PASSWORD = '{PASSWORD}'; CREATE USER {name} FOR LOGIN {name}")


def _refusal(engine: Engine, login: str, password: str, database: str) -> SqlServerError:
    with pytest.raises(SqlServerError) as refused:
        engine.open_session(login=login, password=password, database=database, application="test")
    return refused.value


def test_a_session_is_not_taken_for_an_ended_one_whose_process_had_the_same_number(
    engine: Engine, connect: Callable[..., Client], client: Client
) -> None:
    _make_reader(client, "latecomer")
    highest = int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    own = client.value("SELECT host_process_id FROM sys.dm_exec_sessions WHERE session_id = @@SPID")
    assert isinstance(own, int)
    coming = [(own + ahead - 1) % highest + 1 for ahead in range(1, 10_000)]
    with psycopg.connect(engine.conninfo, autocommit=True) as postgres:
        # The session takes a new process, or one that an ended session has left.
        made = postgres.execute(
            "INSERT INTO emulator.sessions SELECT -row_number() OVER (), pid, 'sa', 'ended', 'master'"
            " FROM (SELECT unnest(%s) UNION SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
            " AS processes (pid) ON CONFLICT DO NOTHING",
            (coming,),
        ).rowcount
        try:
            late = connect("latecomer", PASSWORD)
            assert late.value("SELECT SUSER_SNAME()") == "latecomer"
            assert late.value("SELECT IS_SRVROLEMEMBER('sysadmin')") == 0
            ended = postgres.execute("SELECT count(*) FROM emulator.sessions WHERE application = 'ended'").fetchone()
            assert ended is not None
            assert ended[0] < made
        finally:
            postgres.execute("DELETE FROM emulator.sessions WHERE application = 'ended'")


def test_a_wrong_password_and_an_unknown_login_are_refused_alike(engine: Engine, database: str) -> None:
    for login in ("sa", "nobody"):
        error = _refusal(engine, login, "wrong", database)
        assert (error.number, error.severity, error.state, error.message) == (
            18456,
            14,
            1,
            f"Login failed for user '{login}'.",
        )


def test_an_unknown_database_cannot_be_opened(engine: Engine) -> None:
    error = _refusal(engine, "sa", SA_PASSWORD, "nowhere")
    assert (error.number, error.severity) == (4060, 11)
    assert error.message == 'Cannot open database "nowhere" requested by the login. The login failed.'


def test_a_login_without_a_user_cannot_open_the_database(client: Client, engine: Engine, database: str) -> None:
    client.run(f"CREATE LOGIN stranger WITH PASSWORD = '{PASSWORD}'")
    assert _refusal(engine, "stranger", PASSWORD, database).number == 4060


@pytest.mark.parametrize("system", ["master", "tempdb", "msdb"])
def test_a_login_without_a_user_is_a_guest_where_guests_are_let_in(
    client: Client, connect: Callable[..., Client], database: str, system: str
) -> None:
    client.run(f"CREATE LOGIN visitor_{system} WITH PASSWORD = '{PASSWORD}'")
    visitor = connect(f"visitor_{system}", PASSWORD, system)
    assert visitor.rows("SELECT USER_NAME(), DB_NAME()") == [("guest", system)]
    visitor.run("CREATE TABLE #mine (id int); INSERT INTO #mine VALUES (1)")
    assert visitor.rows("SELECT id FROM #mine") == [(1,)]
    assert visitor.error(f"USE {database}").number == 916
    assert visitor.error("CREATE TABLE dbo.not_a_guest_s (id int)").number == 262


def test_a_user_reads_what_is_granted_and_nothing_else(client: Client, connect: Callable[..., Client]) -> None:
    client.run(
        "CREATE TABLE dbo.open_table (id int); CREATE TABLE dbo.closed_table (id int); INSERT INTO "
        "dbo.open_table VALUES (1)"
    )
    _make_reader(client, "reader")
    client.run("GRANT SELECT ON dbo.open_table TO reader")
    reader = connect("reader", PASSWORD)
    assert reader.rows("SELECT id FROM dbo.open_table") == [(1,)]
    error = reader.error("SELECT id FROM dbo.closed_table")
    assert (error.number, error.severity, error.state) == (229, 14, 5)
    assert (
        error.message
        == "The SELECT permission was denied on the object 'closed_table', database 'security', schema 'dbo'."
    )
    assert reader.error("INSERT INTO dbo.open_table VALUES (2)").message.startswith("The INSERT permission was denied")
    assert reader.error("CREATE TABLE dbo.own (id int)").number == 262


def test_revoke_takes_a_right_back(client: Client, connect: Callable[..., Client]) -> None:
    client.run("CREATE TABLE dbo.lent (id int)")
    _make_reader(client, "borrower")
    client.run("GRANT SELECT, INSERT ON dbo.lent TO borrower")
    borrower = connect("borrower", PASSWORD)
    borrower.run("INSERT INTO dbo.lent VALUES (1); SELECT * FROM dbo.lent")
    client.run("REVOKE SELECT ON dbo.lent FROM borrower")
    assert borrower.error("SELECT * FROM dbo.lent").number == 229


def test_rights_on_a_schema_reach_its_tables(client: Client, connect: Callable[..., Client]) -> None:
    client.run("CREATE SCHEMA staff")
    client.run("CREATE TABLE staff.people (id int)")
    _make_reader(client, "clerk")
    client.run("GRANT SELECT ON SCHEMA::staff TO clerk")
    assert connect("clerk", PASSWORD).rows("SELECT * FROM staff.people") == []


def test_db_datareader_reads_tables_that_come_later(client: Client, connect: Callable[..., Client]) -> None:
    _make_reader(client, "analyst")
    client.run("ALTER ROLE db_datareader ADD MEMBER analyst")
    client.run("CREATE TABLE dbo.later (id int)")
    analyst = connect("analyst", PASSWORD)
    assert analyst.rows("SELECT * FROM dbo.later") == []
    assert analyst.value("SELECT IS_ROLEMEMBER('db_datareader')") == 1


def test_own_roles_carry_rights(client: Client, connect: Callable[..., Client]) -> None:
    client.run("CREATE TABLE dbo.gated (id int); CREATE ROLE gate; GRANT SELECT ON dbo.gated TO gate")
    _make_reader(client, "member")
    assert connect("member", PASSWORD).error("SELECT * FROM dbo.gated").number == 229
    client.run("EXEC sp_addrolemember 'gate', 'member'")
    assert connect("member", PASSWORD).rows("SELECT * FROM dbo.gated") == []


def test_a_db_owner_may_change_tables(client: Client, connect: Callable[..., Client]) -> None:
    _make_reader(client, "chief")
    client.run("ALTER ROLE db_owner ADD MEMBER chief")
    chief = connect("chief", PASSWORD)
    chief.run(
        "CREATE TABLE dbo.chiefs (id int IDENTITY, rv rowversion, n nvarchar(5)); INSERT INTO dbo.chiefs "
        "(n) VALUES (N'a')"
    )
    assert chief.rows("SELECT id, n FROM dbo.chiefs") == [(1, "a")]
    chief.run(
        "CREATE TABLE dbo.keyed (id int PRIMARY KEY); INSERT INTO dbo.keyed VALUES (1); UPDATE dbo.keyed SET id = 2"
    )
    assert chief.error("CREATE LOGIN another WITH PASSWORD = 'x'").number == 15247


def test_any_user_may_use_temp_tables_and_system_views(client: Client, connect: Callable[..., Client]) -> None:
    _make_reader(client, "guesty")
    guest = connect("guesty", PASSWORD)
    guest.run("CREATE TABLE #own (id int IDENTITY PRIMARY KEY, x nvarchar(5)); INSERT INTO #own (x) VALUES (N'a')")
    assert guest.rows("SELECT id, x FROM #own") == [(1, "a")]
    assert guest.value("SELECT COUNT(*) FROM sys.databases WHERE name = DB_NAME()") == 1
    assert guest.rows("SELECT SUSER_SNAME(), USER_NAME(), IS_SRVROLEMEMBER('sysadmin')") == [("guesty", "guesty", 0)]


def test_large_reads_run_with_the_users_rights(client: Client, connect: Callable[..., Client]) -> None:
    client.run(
        "CREATE TABLE dbo.numbers (id int); INSERT INTO dbo.numbers VALUES (0), (1), (2), (3), (4), (5), "
        "(6), (7), (8), (9)"
    )
    _make_reader(client, "counter")
    many = "SELECT a.id FROM dbo.numbers a, dbo.numbers b, dbo.numbers c, dbo.numbers d"
    counter = connect("counter", PASSWORD)
    assert counter.error(many).number == 229
    client.run("GRANT SELECT ON dbo.numbers TO counter")
    assert len(counter.rows(many)) == 10_000


def _shown(client: Client) -> list[str]:
    """Return the tables that the catalog shows; each once, and the same in every place."""
    places = [
        "SELECT name FROM sys.objects WHERE type IN ('U', 'V')",
        "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES",
        "SELECT DISTINCT TABLE_NAME FROM INFORMATION_SCHEMA.COLUMNS",
        "SELECT DISTINCT o.name FROM sys.columns c JOIN sys.all_objects o ON o.object_id = c.object_id",
        "SELECT name FROM (VALUES ('seen_a'), ('seen_b'), ('seen_v')) x (name)"
        " WHERE OBJECT_ID('dbo.' + name) IS NOT NULL",
    ]
    found = [sorted(name for (name,) in client.rows(sql) if str(name).startswith("seen_")) for sql in places]
    assert all(names == found[0] for names in found)
    return found[0]


def test_catalog_shows_a_login_the_tables_it_has_a_right_on(client: Client, connect: Callable[..., Client]) -> None:
    client.run("CREATE TABLE dbo.seen_a (id int CONSTRAINT PK_a PRIMARY KEY, v int CONSTRAINT DF_a DEFAULT 1)")
    client.run("CREATE TABLE dbo.seen_b (id int CONSTRAINT PK_b PRIMARY KEY, v int CHECK (v > 0))")
    client.run("CREATE VIEW dbo.seen_v AS SELECT id FROM dbo.seen_a")
    _make_reader(client, "looker")
    looker = connect("looker", PASSWORD)
    assert _shown(looker) == []
    assert looker.error("SELECT * FROM dbo.seen_a").number == 229
    for right, then in (
        ("SELECT (id) ON dbo.seen_a", ["seen_a"]),
        ("DELETE ON dbo.seen_v", ["seen_a", "seen_v"]),
        ("VIEW DEFINITION ON dbo.seen_b", ["seen_a", "seen_b", "seen_v"]),
    ):
        client.run(f"GRANT {right} TO looker")
        assert _shown(looker) == then
    client.run("REVOKE SELECT (id) ON dbo.seen_a FROM looker; REVOKE VIEW DEFINITION ON dbo.seen_b FROM looker")
    assert _shown(looker) == ["seen_v"]
    client.run("GRANT SELECT ON dbo.seen_a TO looker")
    parts = "SELECT name FROM sys.{} WHERE name LIKE '%[_][ab]'"
    assert looker.rows(parts.format("key_constraints")) == [("PK_a",)]
    assert looker.rows(parts.format("indexes")) == [("PK_a",)]
    assert looker.rows(parts.format("default_constraints")) == [("DF_a",)]
    assert looker.rows("SELECT COUNT(*) FROM sys.check_constraints") == [(0,)]


@pytest.mark.parametrize(
    "right",
    ["SELECT ON SCHEMA::dbo", "VIEW DEFINITION ON SCHEMA::dbo", "VIEW DEFINITION", "CONTROL ON SCHEMA::dbo", "ALTER"],
)
def test_catalog_shows_everything_to_who_has_a_right_on_all(
    client: Client, connect: Callable[..., Client], right: str
) -> None:
    client.run("DROP TABLE IF EXISTS dbo.seen_a; DROP VIEW IF EXISTS dbo.seen_v; DROP TABLE IF EXISTS dbo.seen_b")
    client.run("CREATE TABLE dbo.seen_a (id int)")
    name = "wide_" + right.replace(" ", "_").replace("::", "_").lower()
    _make_reader(client, name)
    client.run(f"GRANT {right} TO {name}")
    assert _shown(connect(name, PASSWORD)) == ["seen_a"]


@pytest.mark.parametrize("role", ["db_datareader", "db_ddladmin", "db_owner"])
def test_catalog_shows_everything_to_roles_that_read_or_change_all(
    client: Client, connect: Callable[..., Client], role: str
) -> None:
    client.run("DROP TABLE IF EXISTS dbo.seen_a; DROP VIEW IF EXISTS dbo.seen_v; DROP TABLE IF EXISTS dbo.seen_b")
    _make_reader(client, f"member_of_{role}")
    client.run(f"ALTER ROLE {role} ADD MEMBER member_of_{role}; CREATE TABLE dbo.seen_a (id int)")
    assert _shown(connect(f"member_of_{role}", PASSWORD)) == ["seen_a"]


def test_login_has_the_rights_of_its_users_in_other_databases(
    client: Client, connect: Callable[..., Client], database: str
) -> None:
    client.run("CREATE DATABASE Elsewhere; USE Elsewhere")
    client.run("CREATE TABLE dbo.known (id int); CREATE TABLE dbo.secret (id int)")
    client.run(f"USE {database}")
    _make_reader(client, "traveller")
    traveller = connect("traveller", PASSWORD)
    assert traveller.error("SELECT * FROM Elsewhere.dbo.known").number == 229
    client.run("USE Elsewhere; CREATE USER abroad FOR LOGIN traveller; GRANT SELECT ON dbo.known TO abroad")
    assert traveller.rows("SELECT * FROM Elsewhere.dbo.known") == []
    assert traveller.error("SELECT * FROM Elsewhere.dbo.secret").number == 229
    assert traveller.value("SELECT HAS_PERMS_BY_NAME('Elsewhere.dbo.known', 'OBJECT', 'SELECT')") == 1
    assert traveller.rows("SELECT name FROM Elsewhere.sys.tables") == [("known",)]
    assert traveller.rows("SELECT USER_NAME(), DB_NAME()") == [("traveller", database)]
    client.run(f"DROP USER abroad; USE {database}")
    assert traveller.error("SELECT * FROM Elsewhere.dbo.known").number == 229
    client.run("DROP DATABASE Elsewhere; DROP USER traveller")


def test_database_permissions_show_what_was_granted_and_denied(client: Client, connect: Callable[..., Client]) -> None:
    for statement in (
        "CREATE TABLE dbo.given (id int, v int)",
        "CREATE PROCEDURE dbo.done AS RETURN 1",
        "CREATE SCHEMA lot",
    ):
        client.run(statement)
    _make_reader(client, "holder")
    client.run("GRANT SELECT, UPDATE (v) ON dbo.given TO holder; GRANT INSERT ON dbo.given TO holder WITH GRANT OPTION")
    client.run("DENY DELETE ON dbo.given TO holder; GRANT EXECUTE ON dbo.done TO holder; GRANT ALTER TO holder")
    client.run("GRANT SELECT ON SCHEMA::lot TO holder; GRANT REFERENCES ON dbo.given TO holder")
    client.run("REVOKE REFERENCES ON dbo.given FROM holder")
    permissions = (
        "SELECT p.class_desc, COALESCE(o.name, s.name), p.minor_id, RTRIM(p.type), p.permission_name, p.state"
        " FROM sys.database_permissions p LEFT JOIN sys.objects o ON p.class = 1 AND o.object_id = p.major_id"
        " LEFT JOIN sys.schemas s ON p.class = 3 AND s.schema_id = p.major_id"
        " WHERE p.grantee_principal_id = USER_ID('holder') ORDER BY p.class, 2, p.permission_name"
    )
    assert client.rows(permissions) == [
        ("DATABASE", None, 0, "AL", "ALTER", "G"),
        ("DATABASE", None, 0, "CO", "CONNECT", "G"),
        ("OBJECT_OR_COLUMN", "done", 0, "EX", "EXECUTE", "G"),
        ("OBJECT_OR_COLUMN", "given", 0, "DL", "DELETE", "D"),
        ("OBJECT_OR_COLUMN", "given", 0, "IN", "INSERT", "W"),
        ("OBJECT_OR_COLUMN", "given", 0, "SL", "SELECT", "G"),
        ("OBJECT_OR_COLUMN", "given", 2, "UP", "UPDATE", "G"),
        ("SCHEMA", "lot", 0, "SL", "SELECT", "G"),
    ]
    client.run("DROP TABLE dbo.given; DROP PROCEDURE dbo.done")
    assert [row[1] for row in client.rows(permissions)] == [None, None, "lot"]
