"""A session on the PostgreSQL connection of one that has ended: nothing of that is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine_client import Client
from sqlserver_emulator.assembly.factory import Engine
from sqlserver_emulator.events import Rows

LISTED = "SELECT host_process_id FROM sys.dm_exec_sessions WHERE program_name = N'test'"
PROCESS = "SELECT host_process_id FROM sys.dm_exec_sessions WHERE session_id = @@SPID"


@pytest.fixture
def watcher(connect: Callable[..., Client]) -> Client:
    """A session of its own, open before the others."""
    return connect()


@pytest.fixture
def reopened(watcher: Client, connect: Callable[..., Client]) -> Callable[[Client], Client]:
    """End a session, and open one on its connection."""

    def reopen(client: Client) -> Client:
        process = client.value(PROCESS)
        client.session.close()
        assert process not in [row[0] for row in watcher.rows(LISTED)]
        other = connect()
        assert other.value(PROCESS) == process
        return other

    return reopen


def test_settings_tables_and_identities_end_with_their_session(
    connect: Callable[..., Client], reopened: Callable[[Client], Client]
) -> None:
    first = connect()
    first.run("CREATE TABLE #kept (a int IDENTITY, b int); INSERT #kept (b) VALUES (7)")
    first.run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SET LOCK_TIMEOUT 10; SET CONTEXT_INFO 0x01")
    first.run("EXEC sp_set_session_context N'tenant', N'one'")
    assert first.value("SELECT SCOPE_IDENTITY()") == 1
    second = reopened(first)
    assert second.rows(
        "SELECT OBJECT_ID(N'tempdb..#kept'), @@LOCK_TIMEOUT, CONTEXT_INFO(), SESSION_CONTEXT(N'tenant'),"
        " SCOPE_IDENTITY(), @@IDENTITY, @@TRANCOUNT"
    ) == [(None, -1, None, None, None, None, 0)]
    assert second.value("SELECT transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id = @@SPID") == 2
    second.run("CREATE TABLE #kept (c int); INSERT #kept VALUES (1)")
    assert second.rows("SELECT * FROM #kept") == [(1,)]


def test_open_transaction_is_rolled_back_and_its_locks_are_free(
    watcher: Client, connect: Callable[..., Client], reopened: Callable[[Client], Client]
) -> None:
    watcher.run("CREATE TABLE dbo.written (a int PRIMARY KEY); INSERT dbo.written VALUES (1)")
    first = connect()
    first.run("BEGIN TRAN; UPDATE dbo.written SET a = 2; EXEC sp_getapplock N'held', 'Exclusive', 'Session'")
    second = reopened(first)
    watcher.run("SET LOCK_TIMEOUT 1000; UPDATE dbo.written SET a = 3")
    assert watcher.value("DECLARE @r int; EXEC @r = sp_getapplock N'held', 'Exclusive', 'Session', 0; SELECT @r") == 0
    assert second.rows("SELECT a, @@TRANCOUNT FROM dbo.written") == [(3, 0)]


def test_statements_of_before_are_prepared_again(
    connect: Callable[..., Client], reopened: Callable[[Client], Client]
) -> None:
    first = connect()
    for _ in range(4):
        assert first.value("SELECT COUNT(*) + 1 FROM (VALUES (1), (2)) AS v (a)") == 3
    second = reopened(first)
    for _ in range(4):
        assert second.value("SELECT COUNT(*) + 1 FROM (VALUES (1), (2)) AS v (a)") == 3


def test_connection_whose_process_has_ended_is_not_used_again(
    engine: Engine, watcher: Client, connect: Callable[..., Client]
) -> None:
    idle = connect()
    process = idle.value(PROCESS)
    idle.session.close()
    assert engine._owner.fetch("SELECT pg_terminate_backend($1::int, 5000)", [process]) == [(True,)]
    assert connect().value(PROCESS) != process


def test_session_that_is_closed_twice_gives_its_connection_back_once(connect: Callable[..., Client]) -> None:
    first = connect()
    for _ in range(2):
        first.session.close()
    second, third = connect(), connect()
    assert second.value(PROCESS) != third.value(PROCESS)


def test_session_that_ends_in_the_middle_of_a_result_leaves_nothing_to_read(connect: Callable[..., Client]) -> None:
    first = connect()
    process = first.value(PROCESS)
    # What is read after a write of the transaction is read on its own connection, however much it is.
    first.run("BEGIN TRAN; CREATE TABLE #written (a int)")
    events = first.session.run_batch("SELECT value FROM GENERATE_SERIES(1, 100000)")
    assert any(isinstance(event, Rows) for event in events)
    first.session.close()
    other = connect()
    assert other.value(PROCESS) == process
    assert other.rows("SELECT 41 + 1") == [(42,)]


DECLARED = "DECLARE @t TABLE (a int PRIMARY KEY, b dbo.short); INSERT @t VALUES (1, 'x'); SELECT * FROM @t"


def test_table_variables_of_the_same_declaration_are_empty_for_the_next_session(
    watcher: Client, connect: Callable[..., Client], reopened: Callable[[Client], Client]
) -> None:
    watcher.run("CREATE TYPE dbo.short FROM varchar(1)")
    client = connect()
    for _ in range(3):
        assert client.rows(DECLARED) == [(1, "x")]
        client = reopened(client)
    watcher.run("DROP TYPE dbo.short; CREATE TYPE dbo.short FROM int")
    assert client.error(DECLARED).number == 245
    assert reopened(client).rows(DECLARED.replace("'x'", "2")) == [(1, 2)]


def test_statements_of_before_find_a_table_as_it_is_now(
    watcher: Client, connect: Callable[..., Client], reopened: Callable[[Client], Client]
) -> None:
    watcher.run("CREATE TABLE dbo.changed (a int); INSERT dbo.changed VALUES (1)")
    client = connect()
    for _ in range(3):
        assert client.rows("SELECT * FROM dbo.changed WHERE a = '1'") == [(1,)]
        client = reopened(client)
    watcher.run("DROP TABLE dbo.changed; CREATE TABLE dbo.changed (a varchar(5), b int)")
    watcher.run("INSERT dbo.changed VALUES ('1', 2)")
    assert client.rows("SELECT * FROM dbo.changed WHERE a = '1'") == [("1", 2)]


def test_rights_of_another_login_are_its_own(
    watcher: Client, connect: Callable[..., Client], reopened: Callable[[Client], Client]
) -> None:
    watcher.run("CREATE TABLE dbo.hidden (a int); INSERT dbo.hidden VALUES (1)")
    watcher.run("CREATE LOGIN pool_reader WITH PASSWORD = 'a long Secret 1'")
    watcher.run("CREATE USER pool_reader FOR LOGIN pool_reader")
    client = connect()
    process = client.value(PROCESS)
    for _ in range(3):
        assert client.rows("SELECT a FROM dbo.hidden") == [(1,)]
        client = reopened(client)
    client.session.close()
    other = connect(login="pool_reader", password="a long Secret 1")
    assert other.error("SELECT a FROM dbo.hidden").number == 229
    other.session.close()
    again = connect()
    assert again.value(PROCESS) == process
    assert again.rows("SELECT a FROM dbo.hidden") == [(1,)]
