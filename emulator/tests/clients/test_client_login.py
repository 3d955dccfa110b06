"""Logging in by every client, and being refused."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from client_body import DATABASE, rows_of
from drivers import DRIVERS, ENCRYPTIONS, Driver
from emulator_process import Emulator


def test_login_is_in_the_database_it_asked_for(connection: Any) -> None:
    assert rows_of(connection, "SELECT DB_NAME(), SUSER_SNAME()") == [(DATABASE, "sa")]


def test_a_wrong_password_is_refused_with_18456(driver: Driver, server: Emulator) -> None:
    stranger = Emulator(**{**vars(server), "password": "wrong"})
    # pymssql shows the text of the first refusal in a process only, but always the number.
    assert_refused(driver, stranger, DATABASE, "18456|Login failed for user 'sa'")


def test_an_unknown_database_is_refused_with_4060(driver: Driver, server: Emulator) -> None:
    # As from the real server 18456 follows 4060, and pymssql and msodbcsql18 show what is more severe: 18456.
    assert_refused(driver, server, "Nowhere", 'Login failed for user|18456|Cannot open database "Nowhere"')


def assert_refused(driver: Driver, server: Emulator, database: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        driver.connect(server, database)


LOGIN_ONLY = {
    "mssql-python-no",
    "mssql-python-optional",
    "pymssql-request",
    "pyodbc-no",
    "pyodbc-optional",
    "python-tds-login-only",
}
NOT_AT_ALL = {"pymssql-off", "python-tds-without-ca"}


@pytest.mark.parametrize("encryption", ENCRYPTIONS)
def test_a_client_logs_in_with_the_encryption_it_asks_for(encryption: str, server: Emulator) -> None:
    if reason := DRIVERS["pyodbc"].why_not() if encryption.startswith("pyodbc") else "":
        pytest.skip(reason)
    with contextlib.closing(ENCRYPTIONS[encryption](server, DATABASE)) as connection:
        query = "SELECT DB_NAME(), encrypt_option FROM sys.dm_exec_connections WHERE session_id = @@SPID"
        assert rows_of(connection, query) == [(DATABASE, "FALSE" if encryption in LOGIN_ONLY | NOT_AT_ALL else "TRUE")]
