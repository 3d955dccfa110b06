"""Transactions under every client: what others see of them, and what an error leaves."""

from __future__ import annotations

from typing import Any

from client_body import DATABASE, error_of, names_in, rows_of, run
from drivers import Driver
from emulator_process import Emulator


def test_a_commit_is_seen_by_others_and_a_rollback_is_not(connection: Any, server: Emulator, table: str) -> None:
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'kept')")
    connection.commit()
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'lost')")
    connection.rollback()
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'also kept')")
    connection.commit()
    assert names_in(server) == ["also kept", "kept"]


def test_an_error_ends_the_statement_and_not_the_transaction(connection: Any, server: Emulator, table: str) -> None:
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'first')")
    error_of(lambda: run(connection, f"INSERT INTO {table} (Name) VALUES (N'first')"))
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'second')")
    assert rows_of(connection, "SELECT @@TRANCOUNT") == [(1,)]
    connection.commit()
    assert names_in(server) == ["first", "second"]


def test_closing_without_commit_rolls_back(driver: Driver, server: Emulator, table: str) -> None:
    connection = driver.connect(server, DATABASE)
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'lost')")
    connection.close()
    assert names_in(server) == []
