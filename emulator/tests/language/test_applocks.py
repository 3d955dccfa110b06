"""sp_getapplock and sp_releaseapplock, by which migration tools keep each other out."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sql_client import SqlClient

Connect = Callable[..., SqlClient]


def status(client: SqlClient, call: str) -> int:
    return int(client.value(f"DECLARE @r int; EXEC @r = {call}; SELECT @r"))


def get(client: SqlClient, more: str, resource: str = "r") -> int:
    return status(client, f"sp_getapplock @Resource = N'{resource}', {more}")


EXCLUSIVE = "@LockMode = 'Exclusive', @LockOwner = 'Session'"


def test_lock_of_a_session_keeps_the_others_out_until_it_is_released(client: SqlClient, connect: Connect) -> None:
    other = connect()
    assert get(client, EXCLUSIVE, "__EFMigrationsLock") == 0
    assert get(other, f"{EXCLUSIVE}, @LockTimeout = 0", "__EFMigrationsLock") == -1
    assert get(other, f"{EXCLUSIVE}, @LockTimeout = 50", "__EFMigrationsLock") == -1
    assert get(other, f"{EXCLUSIVE}, @LockTimeout = 0", "__efmigrationslock") == 0
    assert get(client, EXCLUSIVE, "__EFMigrationsLock") == 0
    released = "sp_releaseapplock @Resource = N'__EFMigrationsLock', @LockOwner = 'Session'"
    assert status(client, released) == 0
    assert get(other, f"{EXCLUSIVE}, @LockTimeout = 0", "__EFMigrationsLock") == -1
    assert status(client, released) == 0
    assert get(other, f"{EXCLUSIVE}, @LockTimeout = 0", "__EFMigrationsLock") == 0
    number, message = client.error(f"EXEC {released}")
    assert number == 1223
    assert "(Database Principal: 'public', Resource: '__EFMigrationsLock') because it is not currently" in message


def test_lock_of_a_transaction_goes_with_it(client: SqlClient, connect: Connect) -> None:
    other = connect()
    client.run("BEGIN TRAN")
    assert get(client, "@LockMode = 'Shared'") == 0
    assert get(other, "@LockMode = 'Shared', @LockOwner = 'Session', @LockTimeout = 0") == 0
    assert get(other, f"{EXCLUSIVE}, @LockTimeout = 0") == -1
    other.run("EXEC sp_releaseapplock N'r', 'Session'")
    assert get(other, f"{EXCLUSIVE}, @LockTimeout = 0") == -1
    client.run("COMMIT")
    assert get(other, f"{EXCLUSIVE}, @LockTimeout = 0") == 0


def test_lock_that_is_waited_for_is_granted_with_one_and_the_timeout_is_the_session_s_again(
    client: SqlClient, connect: Connect
) -> None:
    other, found = connect(), []
    assert get(client, EXCLUSIVE, "w") == 0
    waiting = threading.Thread(target=lambda: found.append(get(other, f"{EXCLUSIVE}, @LockTimeout = 60000", "w")))
    waiting.start()
    client.run("EXEC sp_releaseapplock N'w', 'Session'")
    waiting.join(60)
    assert found in ([0], [1])
    assert other.value("SELECT @@LOCK_TIMEOUT") == -1


def test_lock_ends_with_its_connection(client: SqlClient, connect: Connect) -> None:
    other = connect()
    assert get(other, EXCLUSIVE, "c") == 0
    other.connection.close()
    assert get(client, f"{EXCLUSIVE}, @LockTimeout = 60000", "c") in (0, 1)


def test_session_s_lock_timeout_counts_where_none_is_given(client: SqlClient, connect: Connect) -> None:
    other = connect()
    assert get(client, EXCLUSIVE, "t") == 0
    other.run("SET LOCK_TIMEOUT 50")
    assert get(other, EXCLUSIVE, "t") == -1


def test_deadlock_is_a_status_and_leaves_the_transactions(client: SqlClient, connect: Connect) -> None:
    other = connect()
    client.run("BEGIN TRAN")
    other.run("BEGIN TRAN")
    assert get(client, "@LockMode = 'Exclusive'", "first") == 0
    assert get(other, "@LockMode = 'Exclusive'", "second") == 0
    found = []

    def ask(asking: SqlClient, resource: str) -> None:
        found.append(get(asking, "@LockMode = 'Exclusive'", resource))
        if found[-1] == -3:
            assert asking.value("SELECT @@TRANCOUNT") == 1
            asking.run("ROLLBACK")

    waiting = threading.Thread(target=ask, args=(other, "first"))
    waiting.start()
    ask(client, "second")
    waiting.join(60)
    assert sorted(found) == [-3, 1]


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("sp_getapplock N'r', 'Shared', 'Session', -2", 1227),
        ("sp_getapplock NULL, 'Shared', 'Session'", 1224),
        ("sp_getapplock N'r', 'Shared', 'Session', 0, 'nobody'", 1202),
        ("sp_getapplock N'r', 'Update', 'Session'", 49999),
        ("sp_getapplock N'r'", 201),
        ("sp_releaseapplock N'not held', 'Session'", 1223),
    ],
)
def test_wrong_call_is_refused(client: SqlClient, call: str, number: int) -> None:
    assert client.error(f"EXEC {call}")[0] == number


@pytest.mark.parametrize(
    "call",
    [
        "sp_getapplock N'r', 'Exclusive'",
        "sp_getapplock N'r', 'Sometimes', 'Session'",
        "sp_getapplock N'r', 'Shared', 'Server'",
        "sp_releaseapplock N'r'",
    ],
)
def test_wrong_call_is_a_status_without_an_error(client: SqlClient, call: str) -> None:
    assert status(client, call) == -999
