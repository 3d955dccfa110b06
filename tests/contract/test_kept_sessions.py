"""Transactions and reads of one step share a session, and one that the server has ended is not noticed."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import pytest

from cdc_database import CdcDatabase, cdc_database, wait_until
from floodmark.core.errors import FloodmarkError, WarehouseUnavailableError
from floodmark.postgres.session import WarehouseConnection, open_session, open_statements, open_transaction
from floodmark.postgres.warehouse import sink
from floodmark.postgres.warehouse.sink import ArrowSession
from floodmark.sources.sqlserver.driver import LOCK_TIMEOUT_SECONDS, SourceSession, SqlServerConnection, proven_session
from floodmark.sync import sessions as kept

if TYPE_CHECKING:
    from emulator_process import Emulator


def process_of(session: psycopg.Connection) -> int:
    return session.info.backend_pid


def in_transaction(
    database: WarehouseConnection, statement: str = "SELECT 1", then: Callable[[], object] = lambda: None
) -> int:
    """The server's process of a transaction."""
    with open_transaction(database) as session:
        session.execute(statement)
        then()
        return process_of(session)


def living(database: WarehouseConnection) -> set[int]:
    """The processes of the database's sessions but that of the query.

    One ends a moment after its session is closed, so tests wait for the end.
    """
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        rows = session.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return {pid for (pid,) in rows}


def outside(test: Callable[[], None]) -> None:
    """Run without what the fixture keeps."""
    contextvars.Context().run(test)


def test_transactions_of_a_block_share_a_session_that_ends_with_it(database: WarehouseConnection) -> None:
    def run() -> None:
        with kept.kept_sessions():
            with kept.kept_sessions():
                first = in_transaction(database)
            assert in_transaction(database) == first
            assert first in living(database)
        wait_until(lambda: first not in living(database))

    outside(run)


def test_threads_that_are_given_the_context_of_a_block_share_its_sessions(database: WarehouseConnection) -> None:
    def together(threads: int) -> set[int]:
        """The processes of transactions that are open at once, each in a thread."""
        all_open = threading.Barrier(threads)

        def transaction(context: contextvars.Context) -> int:
            return context.run(in_transaction, database, then=all_open.wait)

        with ThreadPoolExecutor(threads) as pool:
            return set(pool.map(transaction, [contextvars.copy_context() for _ in range(threads)]))

    def run() -> None:
        with kept.kept_sessions():
            first = together(3)
            assert len(first) == 3
            assert together(3) == first
            assert in_transaction(database) in first
        wait_until(lambda: not first & living(database))

    outside(run)


def test_limits_of_statements_end_with_their_block(database: WarehouseConnection) -> None:
    with open_statements(database) as session:
        session.execute("SET lock_timeout = '2s'")
        first = process_of(session)
    with open_transaction(database) as session:
        assert process_of(session) == first
        assert session.execute("SELECT current_setting('lock_timeout')").fetchone() == ("0",)


def test_transactions_outside_of_a_block_have_a_session_each(database: WarehouseConnection) -> None:
    def run() -> None:
        first = in_transaction(database)
        assert in_transaction(database) != first
        wait_until(lambda: living(database) == set())

    outside(run)


def test_session_that_the_server_has_ended_is_replaced(database: WarehouseConnection) -> None:
    first = in_transaction(database)
    with psycopg.connect(database.conninfo(), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    assert in_transaction(database) != first


def test_session_that_ends_within_a_transaction_is_an_error_and_is_not_kept(database: WarehouseConnection) -> None:
    with pytest.raises(WarehouseUnavailableError):
        in_transaction(database, "SELECT pg_terminate_backend(pg_backend_pid())")
    in_transaction(database)


def test_transaction_that_fails_leaves_a_session_without_its_settings(database: WarehouseConnection) -> None:
    first = in_transaction(database)
    with pytest.raises(ZeroDivisionError), open_transaction(database) as session:
        session.execute("SET LOCAL lock_timeout = '2s'")
        session.execute("CREATE TABLE undone (id int)")
        raise ZeroDivisionError
    with open_transaction(database) as session:
        assert process_of(session) == first
        assert session.execute("SELECT current_setting('lock_timeout')").fetchone() == ("0",)
        assert session.execute("SELECT to_regclass('undone')").fetchone() == (None,)


def test_transaction_within_another_has_a_session_of_its_own(database: WarehouseConnection) -> None:
    with open_transaction(database) as outer, open_transaction(database) as inner:
        assert process_of(outer) != process_of(inner)


def test_session_of_locks_is_never_shared(database: WarehouseConnection) -> None:
    first = in_transaction(database)
    with open_session(database) as session:
        assert process_of(session) != first
    assert in_transaction(database) == first


def test_session_that_was_idle_for_too_long_is_replaced(
    database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = in_transaction(database)
    monkeypatch.setattr(kept, "IDLE_SECONDS", 0.0)
    assert in_transaction(database) != first
    wait_until(lambda: first not in living(database))


def test_table_whose_columns_another_session_changes_is_read_again(database: WarehouseConnection) -> None:
    in_transaction(database, "CREATE TABLE shape (a int)")
    for _ in range(10):
        in_transaction(database, "SELECT * FROM shape")
    with psycopg.connect(database.conninfo(), autocommit=True) as other:
        other.execute("ALTER TABLE shape ADD b int")
    in_transaction(database, "SELECT * FROM shape")


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        yield made


@pytest.fixture
def at(emulator: Emulator, source: CdcDatabase) -> SqlServerConnection:
    return SqlServerConnection(
        emulator.host, emulator.port, source.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
    )


@dataclass
class Reads:
    """Reads of a source, which note how often a session was proven."""

    at: SqlServerConnection
    proven: int = 0

    def prove(self, session: SourceSession) -> None:
        session.fetch("SELECT 1 AS one")
        self.proven += 1

    def is_new(self, statement: str = "SELECT 1 AS one") -> bool:
        """Return whether the session of a read has the settings of a new one, and change them."""
        with proven_session(self.at, "dbo.Orders", self.prove) as session:
            session.fetch(statement)
            [(limit,)] = session.fetch("SELECT @@LOCK_TIMEOUT AS lock_timeout")
            session.fetch_sets("SET LOCK_TIMEOUT 7")
            return bool(limit == LOCK_TIMEOUT_SECONDS * 1000)


def test_reads_of_a_step_share_a_session_with_the_source_and_each_proves_it(at: SqlServerConnection) -> None:
    reads = Reads(at)
    assert reads.is_new()
    assert reads.is_new()
    with kept.kept_sessions():
        assert [reads.is_new() for _ in range(3)] == [True, False, False]
        with proven_session(at, "dbo.Other", reads.prove):
            assert reads.is_new()
    assert reads.proven == 7


def test_session_with_the_source_is_not_kept_after_an_error_or_a_read_that_was_given_up(
    at: SqlServerConnection,
) -> None:
    reads = Reads(at)
    with kept.kept_sessions():
        assert reads.is_new()
        with pytest.raises(FloodmarkError, match=r"dbo\.Orders"):
            reads.is_new("SELECT missing FROM dbo.missing")
        assert reads.is_new()
        with pytest.raises(ZeroDivisionError), proven_session(at, "dbo.Orders", reads.prove):
            raise ZeroDivisionError
        assert reads.is_new()


def test_session_that_the_source_has_ended_is_replaced(at: SqlServerConnection, source: CdcDatabase) -> None:
    reads = Reads(at)
    with kept.kept_sessions():
        assert reads.is_new()
        source.run(
            f"ALTER DATABASE [{source.name}] SET SINGLE_USER WITH ROLLBACK IMMEDIATE",
            f"ALTER DATABASE [{source.name}] SET MULTI_USER",
        )
        assert reads.is_new()


def test_parts_of_a_task_share_a_session_with_the_warehouse(database: WarehouseConnection) -> None:
    def process(*, commits: bool = True) -> object:
        with ArrowSession(database, "dbo.Orders") as session:
            [(found,)] = session.fetch("SELECT pg_backend_pid()")
            [(limit,)] = session.fetch("SELECT current_setting('TimeZone')")
            assert limit == "UTC"
            if commits:
                session.commit()
            return found

    def run() -> None:
        with kept.kept_sessions():
            first = process()
            assert process() == first
            with psycopg.connect(database.conninfo(), autocommit=True) as other:
                states = "SELECT state FROM pg_stat_activity WHERE pid = %s"
                assert other.execute(states, [first]).fetchone() == ("idle",)  # and in no transaction
            assert process(commits=False) == first
            second = process()
            assert second != first
            with psycopg.connect(database.conninfo(), autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [second])
            assert process() != second
        wait_until(lambda: living(database) == set())

    outside(run)


def test_sessions_with_the_warehouse_are_opened_and_closed_one_at_a_time(
    database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver counts them without a lock. A lost count failed each later close: connection count underflowed."""
    seen = []

    class Lock:
        def __enter__(self) -> None:
            seen.append("locked")

        def __exit__(self, *_: object) -> None:
            seen.append("unlocked")

    monkeypatch.setattr(sink, "_counting", Lock())
    with ArrowSession(database, "dbo.Orders") as session:
        assert seen == ["locked", "unlocked"]
        session.execute("SELECT 1")
    assert seen == ["locked", "unlocked"] * 2
