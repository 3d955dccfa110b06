"""Transactions of one step share a session, and one that the server has ended is not noticed."""

from __future__ import annotations

import contextvars
from collections.abc import Callable

import psycopg
import pytest

from cdc_database import wait_until
from floodmark.core.errors import WarehouseUnavailableError
from floodmark.postgres import session as kept
from floodmark.postgres.session import WarehouseConnection, open_session, open_transaction


def process_of(session: psycopg.Connection) -> int:
    return session.info.backend_pid


def in_transaction(database: WarehouseConnection, statement: str = "SELECT 1") -> int:
    """The server's process of a transaction."""
    with open_transaction(database) as session:
        session.execute(statement)
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
