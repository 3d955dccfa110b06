"""A database that other sessions are in: it cannot be dropped, and they can be sent away."""

from __future__ import annotations

from collections.abc import Callable

import pymssql
import pytest

from sql_client import SqlClient

Connect = Callable[..., SqlClient]


def test_database_that_another_session_is_in_is_not_dropped(client: SqlClient, connect: Connect) -> None:
    client.run("CREATE DATABASE Shared")
    other = connect()
    other.run("USE Shared; CREATE TABLE kept (a int)")
    number, message = client.error("DROP DATABASE Shared")
    assert (number, 'database "Shared" because it is currently in use' in message) == (3702, True)
    assert other.rows("SELECT name FROM sys.tables") == [("kept",)]
    other.run("USE master")
    client.run("DROP DATABASE Shared")


def test_database_can_be_dropped_when_its_sessions_have_gone(client: SqlClient, connect: Connect) -> None:
    client.run("CREATE DATABASE [Left]")
    other = connect()
    other.run("USE [Left]")
    other.connection.close()
    client.run("DROP DATABASE [Left]")


@pytest.mark.parametrize("option", ["SINGLE_USER", "READ_COMMITTED_SNAPSHOT ON"])
def test_rollback_immediate_ends_the_others(client: SqlClient, connect: Connect, option: str) -> None:
    client.run("CREATE DATABASE Taken; CREATE TABLE Taken.dbo.t (a int)")
    other, bystander = connect(), connect()
    other.run("USE Taken; BEGIN TRAN; INSERT t VALUES (1)")
    client.run(f"USE Taken; ALTER DATABASE Taken SET {option} WITH ROLLBACK IMMEDIATE")
    assert client.rows("SELECT * FROM t") == []
    with pytest.raises(pymssql.Error):
        other.run("SELECT 1")
    assert bystander.value("SELECT 1") == 1
    client.run("ALTER DATABASE Taken SET MULTI_USER; USE master; DROP DATABASE Taken")
