"""Logins to the source by Kerberos: by keytab or ticket, and each refusal as one message. Left out without a KDC."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from emulator_process import Emulator, running_emulator
from floodmark.core.doctor import Grade
from floodmark.sources.cdc.kind import CdcKind
from floodmark.sources.sqlserver.kerberos import NoTicketError, read_ticket
from kdc import CLIENT, MISSING, Kdc, find_kdc, running_kdc

pytestmark = pytest.mark.skipif(find_kdc() is None, reason=MISSING)
CONNECT = """
from floodmark.core.errors import FloodmarkError
from floodmark.sources.cdc.kind import CdcKind
from floodmark.sources.sqlserver.driver import connect
try:
    with connect(CdcKind("shop").database()) as session:
        print("logged in as", session.fetch("SELECT SUSER_SNAME()")[0][0])
except FloodmarkError as error:
    print(type(error).__name__, error)
"""
PROVIDERS = ("", "mssql-odbc")
"""The default one, msodbcsql18 where it loads, and that in Rust; a process can load only one of them."""


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as running:
        yield running


@pytest.fixture(scope="module")
def server(kdc: Kdc, shared_dir: Path) -> Iterator[Emulator]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.service.items():
            patch.setenv(name, value)
        with running_emulator(shared_dir / "shop-with-kerberos", databases=("Shop",)) as running:
            for name in (
                "localhost",
                f"localhost:{running.port}",
                f"{socket.gethostname()}:{running.port}",
                "alias:1433",
            ):
                kdc.add_service(f"MSSQLSvc/{name}")
            kdc.administrate("addprinc -randkey MSSQLSvc/another:1433")
            run(
                running,
                "CREATE LOGIN loader WITH PASSWORD = N'Unused-1'",
                "CREATE USER loader FOR LOGIN loader",
                f"EXEC emulator.accept_principal @principal = N'{CLIENT}', @login = N'loader'",
            )
            yield running


def run(server: Emulator, *statements: str) -> None:
    with closing(server.connect_pymssql("Shop", autocommit=True)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def source(server: Emulator, **extra: object) -> str:
    fields = {"conn_type": "mssql", "host": "localhost", "port": server.port, "schema": "Shop"}
    return json.dumps(fields | {"extra": {"authentication": "Kerberos", "ca_file": str(server.ca_file)} | extra})


def connect(server: Emulator, environment: dict[str, str], provider: str = "", **extra: Any) -> str:
    """Return what a process prints that connects once: its login, or the error in one line."""
    chosen = {"MSSQL_PYTHON_NATIVE_PROVIDER": provider} if provider else {}
    done = subprocess.run(
        [sys.executable, "-c", CONNECT],
        env=os.environ | environment | chosen | {"AIRFLOW_CONN_SHOP": source(server, **extra)},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    return line


@pytest.mark.parametrize("provider", PROVIDERS)
def test_keytab_logs_in_with_the_drivers_service_name_or_a_given_one(server: Emulator, kdc: Kdc, provider: str) -> None:
    assert connect(server, kdc.client, provider) == "logged in as loader"
    assert connect(server, kdc.client, provider, server_spn="MSSQLSvc/alias:1433") == "logged in as loader"


def test_words_of_odbc_name_kerberos_too(server: Emulator, kdc: Kdc) -> None:
    trusted = {"authentication": "", "Trusted_Connection": "yes", "ServerSPN": f"MSSQLSvc/localhost:{server.port}"}
    assert connect(server, kdc.client, **trusted) == "logged in as loader"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_refusal_is_one_message_with_what_to_do(server: Emulator, kdc: Kdc, provider: str, tmp_path: Path) -> None:
    missing = connect(server, kdc.without_ticket, provider)
    assert missing.startswith(f"SourceLoginError Kerberos@localhost:{server.port}/Shop: this process has no ticket")
    assert "Name a keytab in KRB5_CLIENT_KTNAME" in missing
    unknown = connect(server, kdc.client, provider, server_spn="MSSQLSvc/nowhere:1433")
    assert f"SourceLoginError Kerberos@localhost:{server.port}/Shop: {CLIENT} got no ticket for" in unknown
    assert re.search(
        r"MSSQLSvc/nowhere:1433\S* not found in Kerberos database.*name the one that is as server_spn", unknown
    )
    foreign = connect(server, kdc.client, provider, server_spn="MSSQLSvc/another:1433")
    assert "SourceLoginError" in foreign
    assert "the server refused the login by Kerberos" in foreign
    assert "more than five minutes apart" in foreign
    config = (kdc.folder / "krb5.conf").read_text(encoding="utf-8")
    (tmp_path / "krb5.conf").write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", config), encoding="utf-8")
    away = {"KRB5_CONFIG": str(tmp_path / "krb5.conf"), "KRB5CCNAME": f"FILE:{tmp_path / 'cache'}"}
    unreachable = connect(server, kdc.client | away, provider)
    assert "SourceUnavailableError" in unreachable
    assert "Cannot contact any KDC" in unreachable


@pytest.fixture
def ticket(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kdc.client.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("ticket")
def test_doctor_says_whose_the_ticket_is_and_what_renews_it(
    server: Emulator, kdc: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", source(server))
    assert read_ticket().principal == CLIENT
    (found,) = CdcKind("shop").examine_login()
    assert (found.grade, found.check) == (Grade.GOOD, "login")
    assert re.fullmatch(rf"a ticket of {CLIENT}, which lasts \d+ minutes; the keytab renews it\.", found.text)
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")
    (found,) = CdcKind("shop").examine_login()
    assert found.grade is Grade.NOTE
    assert found.text.endswith(" minutes: no keytab is named that would renew it.")
    for name, value in kdc.without_ticket.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NoTicketError, match="No Kerberos credentials available"):
        read_ticket()
    (found,) = CdcKind("shop").examine_login()
    assert found.grade is Grade.PROBLEM
