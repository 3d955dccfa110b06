"""Values that a session keeps for itself (SESSION_CONTEXT, CONTEXT_INFO), and functions of strings and JSON."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from sql_client import SqlClient


def test_session_context_gives_what_was_set(client: SqlClient) -> None:
    assert client.rows("SELECT SESSION_CONTEXT(N'user')") == [(None,)]
    client.run("EXEC sp_set_session_context N'user', N'ann' EXEC sp_set_session_context @key = N'tenant', @value = 42")
    query = "SELECT CAST(SESSION_CONTEXT(N'user') AS nvarchar(9)), CAST(SESSION_CONTEXT(N'tenant') AS int) + 1"
    assert client.rows(query) == [("ann", 43)]
    client.run("EXEC sp_set_session_context N'user', NULL")
    assert client.value("SELECT SESSION_CONTEXT(N'user')") is None


def test_session_context_may_be_read_only(client: SqlClient) -> None:
    client.run("EXEC sp_set_session_context N'fixed', N'a', @read_only = 1")
    number, message = client.error("EXEC sp_set_session_context N'fixed', N'b'")
    assert number == 15664
    assert "Cannot set key 'fixed' in the session context." in message
    assert client.value("SELECT CAST(SESSION_CONTEXT(N'fixed') AS nvarchar(9))") == "a"


def test_rollback_keeps_the_session_context_and_a_trigger_reads_it(client: SqlClient) -> None:
    client.script("""
        CREATE TABLE things (id int)
        CREATE TABLE audit (who nvarchar(20), info varbinary(3))
        GO
        CREATE TRIGGER note ON things AFTER INSERT AS
        INSERT audit SELECT CAST(SESSION_CONTEXT(N'who') AS nvarchar(20)), SUBSTRING(CONTEXT_INFO(), 1, 3)
        GO
        BEGIN TRANSACTION
        EXEC sp_set_session_context N'who', N'bob'
        SET CONTEXT_INFO 0x010203
        INSERT things VALUES (1)
        ROLLBACK
        INSERT things VALUES (2)""")
    assert client.rows("SELECT who, info FROM audit") == [("bob", b"\1\2\3")]


def test_context_info_is_128_bytes_or_null(client: SqlClient) -> None:
    assert client.value("SELECT CONTEXT_INFO()") is None
    client.run("DECLARE @info varbinary(128) = CAST('abc' AS varbinary(128)) SET CONTEXT_INFO @info")
    assert client.value("SELECT CONTEXT_INFO()") == b"abc" + bytes(125)


@pytest.mark.parametrize(
    ("name", "sound"), [("Smith", "S530"), ("Smythe", "S530"), ("Robert", "R163"), ("Tymczak", "T522"), ("a", "A000")]
)
def test_soundex(client: SqlClient, name: str, sound: str) -> None:
    assert client.value(f"SELECT SOUNDEX('{name}')") == sound


def test_difference_counts_what_sounds_alike(client: SqlClient) -> None:
    assert client.rows("SELECT DIFFERENCE('Green', 'Greene'), DIFFERENCE('Blotchet-Halls', 'Greene')") == [(4, 0)]


@pytest.mark.parametrize("text", ["", "abc", "x" * 55, "x" * 56, "x" * 63, "x" * 64, "x" * 200])
def test_hashbytes_with_sha1(client: SqlClient, text: str) -> None:
    assert client.value(f"SELECT HASHBYTES('SHA1', '{text}')") == hashlib.sha1(text.encode()).digest()  # noqa: S324


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("JSON_ARRAY(1, 'a', NULL, CAST(1 AS bit))", '[1,"a",true]'),
        ("JSON_ARRAY(1, NULL NULL ON NULL)", "[1,null]"),
        ("JSON_ARRAY()", "[]"),
        ("JSON_OBJECT('a': 1, N'b': N'\"', 'c': NULL)", '{"a":1,"b":"\\"","c":null}'),
        ("JSON_OBJECT('a': NULL, 'b': 2 ABSENT ON NULL)", '{"b":2}'),
        ("JSON_OBJECT('in': JSON_ARRAY(1, JSON_OBJECT('x': 1.5)))", '{"in":[1,{"x":1.5}]}'),
        ("JSON_OBJECT()", "{}"),
    ],
)
def test_json_is_made_of_values(client: SqlClient, expression: str, text: Any) -> None:
    assert client.value(f"SELECT {expression}") == text
