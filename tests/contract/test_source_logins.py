"""Refused logins: a database that is away for a while is waited for, a wrong password is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import SourceLoginError, SourceUnavailableError
from floodmark.sources.sqlserver.driver import SqlServerConnection, connect


@pytest.fixture
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        try:
            yield made
        finally:
            made.run("EXEC emulator.clear_faults")


@pytest.fixture
def at(emulator: Emulator, database: CdcDatabase) -> SqlServerConnection:
    return SqlServerConnection(
        emulator.host, emulator.port, database.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
    )


@pytest.mark.parametrize("number", [4060, 976, 978, 983, 40613])
def test_database_that_cannot_be_opened_is_tried_again(
    at: SqlServerConnection, database: CdcDatabase, number: int
) -> None:
    database.run(f"EXEC emulator.fail_logins @error = {number}, @times = 0, @database = N'{database.name}'")
    with pytest.raises(SourceUnavailableError, match=database.name) as caught:
        connect(at)
    assert caught.value.retryable
    assert "check the database's name" in str(caught.value)
    database.run("EXEC emulator.clear_faults")
    connect(at).close()


def test_login_that_the_whole_server_refuses_is_not_tried_again(at: SqlServerConnection, database: CdcDatabase) -> None:
    database.run("EXEC emulator.fail_logins @error = 18456, @times = 0")
    with pytest.raises(SourceLoginError, match="Login failed"):
        connect(at)


def test_wrong_password_is_not_tried_again(at: SqlServerConnection) -> None:
    with pytest.raises(SourceLoginError, match="Login failed") as caught:
        connect(replace(at, password="a wrong one"))
    assert "a wrong one" not in caught.value.in_full
