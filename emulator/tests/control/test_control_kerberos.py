"""Logins by Kerberos: who is accepted, with both of the driver's providers. Left out where there is no KDC."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator_process import Emulator
from kdc import CLIENT, MISSING, Kdc, find_kdc, kerberos_emulator, running_kdc

pytestmark = pytest.mark.skipif(find_kdc() is None, reason=MISSING)
SCRIPT = """
import sys, mssql_python
text = f"Server=tcp:localhost,{sys.argv[1]};Database=Test;Encrypt=yes;Trusted_Connection=yes;{sys.argv[2]}"
try:
    cursor = mssql_python.connect(text).cursor()
    cursor.execute("SELECT SUSER_SNAME()")
    print(cursor.fetchone()[0])
except mssql_python.Error as error:
    print("refused:", error)
"""


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as running:
        yield running


@pytest.fixture(scope="module")
def server(kdc: Kdc, shared_dir: Path) -> Iterator[Emulator]:
    with kerberos_emulator(kdc, shared_dir / "kerberos") as running:
        with running.connect_pymssql("Test", autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE LOGIN loader WITH PASSWORD = N'Unused-1'")
            cursor.execute("CREATE USER loader FOR LOGIN loader")
        yield running


@pytest.fixture
def accepted(server: Emulator) -> None:
    with server.connect_pymssql(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"EXEC emulator.accept_principal @principal = N'{CLIENT}', @login = N'loader'")


def log_in(server: Emulator, environment: dict[str, str], more: str = "", provider: str = "") -> str:
    chosen = {"MSSQL_PYTHON_NATIVE_PROVIDER": provider} if provider else {}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(server.port), more],
        env=os.environ | environment | chosen | {"SSL_CERT_FILE": str(server.ca_file)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_principal_that_nobody_named_is_refused(server: Emulator, kdc: Kdc) -> None:
    assert f"Login failed for user '{CLIENT}'" in log_in(server, kdc.client)


@pytest.mark.usefixtures("accepted")
@pytest.mark.parametrize("provider", ["", "mssql-odbc"])
def test_principal_becomes_the_login_that_was_named(server: Emulator, kdc: Kdc, provider: str) -> None:
    assert log_in(server, kdc.client, provider=provider) == "loader"


@pytest.mark.usefixtures("accepted")
def test_client_without_a_ticket_and_a_name_without_a_service_do_not_log_in(server: Emulator, kdc: Kdc) -> None:
    assert log_in(server, kdc.without_ticket).startswith("refused:")
    assert log_in(server, kdc.client, "ServerSPN=MSSQLSvc/nowhere").startswith("refused:")
