"""fn_my_permissions: what a login may do (sys.fn_my_permissions (Transact-SQL), Remarks)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import pytest

from emulator_process import Emulator
from sql_client import SqlClient

PASSWORD = "Visitor-9876"
LOGINS = ("may_read", "may_some", "may_ddl", "may_all", "may_nothing")
OBJECTS = """
CREATE TABLE guarded (id int PRIMARY KEY, q int)
GO
CREATE SCHEMA side
GO
CREATE TABLE side.open_one (a int)
GO
CREATE VIEW guarded_view AS SELECT id FROM guarded
GO
CREATE PROCEDURE guarded_procedure AS SELECT 1
GO
ALTER ROLE db_datareader ADD MEMBER may_read
GRANT VIEW DATABASE STATE TO may_read
GRANT SELECT (id), UPDATE (q) ON guarded TO may_some
GRANT INSERT ON guarded TO may_some
GRANT EXECUTE ON guarded_procedure TO may_some
GRANT CONTROL, SELECT ON SCHEMA::side TO may_some
DENY VIEW DEFINITION ON SCHEMA::side TO may_some
ALTER ROLE db_ddladmin ADD MEMBER may_ddl
ALTER ROLE db_owner ADD MEMBER may_all
"""
Login = Callable[[str], SqlClient]


@pytest.fixture
def login(client: SqlClient, emulator: Emulator, database: str) -> Iterator[Login]:
    if client.value("SELECT OBJECT_ID('guarded')") is None:
        for name in LOGINS:
            client.run(f"CREATE LOGIN {name} WITH PASSWORD = '{PASSWORD}'; CREATE USER {name} FOR LOGIN {name}")
        client.script(OBJECTS)
    with contextlib.ExitStack() as opened:

        def connected(name: str) -> SqlClient:
            other = dataclasses.replace(emulator, user=name, password=PASSWORD)
            connection = other.connect_pymssql(database, autocommit=True)
            return SqlClient(opened.enter_context(contextlib.closing(connection)))

        yield connected


def rights(client: SqlClient, securable: str, of_class: str) -> set[str]:
    """Return the rights on the securable itself, without those on its columns."""
    query = f"SELECT * FROM sys.fn_my_permissions({securable}, '{of_class}') WHERE subentity_name IS NULL"
    return {permission for _, _, permission in client.rows(query)}


def test_columns_are_those_of_the_documentation(client: SqlClient, login: Login) -> None:
    login("may_read")
    cursor = client.connection.cursor()
    cursor.execute("SELECT * FROM fn_my_permissions(NULL, 'DATABASE') WHERE permission_name = 'CONTROL'")
    assert [column[0] for column in cursor.description] == ["entity_name", "subentity_name", "permission_name"]
    assert cursor.fetchall() == [("database", None, "CONTROL")]
    assert client.rows("SELECT DISTINCT entity_name FROM fn_my_permissions(NULL, NULL)") == [("server",)]
    assert client.rows("SELECT DISTINCT entity_name FROM fn_my_permissions('dbo.guarded', 'object')") == [
        ("dbo.guarded",)
    ]


def test_rights_on_the_server_are_sysadmin_s(client: SqlClient, login: Login) -> None:
    assert {"CONTROL SERVER", "VIEW SERVER STATE", "CONNECT SQL"} <= rights(client, "NULL", "SERVER")
    assert rights(login("may_all"), "DEFAULT", "SERVER") == {"CONNECT SQL", "VIEW ANY DATABASE"}
    assert rights(client, "'some_server'", "SERVER") == set()


def test_rights_on_the_database_are_granted_or_come_by_roles(client: SqlClient, login: Login, database: str) -> None:
    assert rights(login("may_nothing"), "NULL", "DATABASE") == {"CONNECT"}
    assert rights(login("may_read"), f"'{database}'", "DATABASE") == {
        "CONNECT",
        "SELECT",
        "VIEW DATABASE PERFORMANCE STATE",
        "VIEW DATABASE STATE",
    }
    assert {"CREATE TABLE", "ALTER ANY SCHEMA"} <= rights(login("may_ddl"), "NULL", "DATABASE")
    assert "CONTROL" not in rights(login("may_ddl"), "NULL", "DATABASE")
    assert rights(login("may_all"), "NULL", "DATABASE") == rights(client, "NULL", "DATABASE")
    assert rights(login("may_all"), "'model'", "DATABASE") == rights(client, "'absent'", "DATABASE") == set()


def test_rights_on_an_object_are_those_of_its_columns_too(client: SqlClient, login: Login) -> None:
    some = login("may_some")
    query = "SELECT subentity_name, permission_name FROM fn_my_permissions('guarded', 'OBJECT') ORDER BY 1, 2"
    assert some.rows(query) == [(None, "INSERT"), ("id", "SELECT"), ("q", "UPDATE")]
    assert rights(login("may_read"), "'guarded_view'", "OBJECT") == {"SELECT"}
    assert rights(some, "'guarded_procedure'", "OBJECT") == {"EXECUTE"}
    assert rights(login("may_nothing"), "'guarded'", "OBJECT") == rights(client, "'absent'", "OBJECT") == set()
    assert {"ALTER", "VIEW DEFINITION"} == rights(login("may_ddl"), "'guarded'", "OBJECT")
    assert {"ALTER", "CONTROL", "DELETE", "VIEW CHANGE TRACKING"} <= rights(login("may_all"), "'guarded'", "OBJECT")


def test_control_of_a_schema_is_every_right_on_it_but_those_denied(login: Login) -> None:
    some = login("may_some")
    assert {"CONTROL", "ALTER", "SELECT", "EXECUTE"} <= rights(some, "'side'", "SCHEMA")
    assert "VIEW DEFINITION" not in rights(some, "'side'", "SCHEMA")
    assert rights(some, "'dbo'", "SCHEMA") == rights(some, "'absent'", "SCHEMA") == set()


def test_other_classes_are_refused_by_name(client: SqlClient) -> None:
    number, message = client.error("SELECT * FROM fn_my_permissions('a', 'CERTIFICATE')")
    assert (number, "CERTIFICATE" in message) == (49999, True)
