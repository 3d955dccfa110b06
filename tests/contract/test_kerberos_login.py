"""Logins to the source by Kerberos: by keytab or ticket, and each refusal as one message. Left out without a KDC."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cdc_database import CdcDatabase, wait_until
from embedded_postgres import EmbeddedPostgres
from emulator_process import Emulator
from floodmark.core.doctor import Finding, Grade
from floodmark.sources.cdc.kind import CdcKind
from floodmark.sources.sqlserver.kerberos import NoTicketError, read_ticket
from kdc import CLIENT, MISSING, Kdc, find_kdc, kerberos_emulator, running_kdc
from passwordless_windows import Windows, warehouse_of_its_own

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
NO_TICKET = "there is no ticket of Kerberos: No Kerberos credentials available"
PROVIDERS = ("", "mssql-odbc")
"""The default one, msodbcsql18 where it loads, and that in Rust; a process can load only one of them."""


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as running:
        yield running


@pytest.fixture(scope="module")
def server(kdc: Kdc, shared_dir: Path) -> Iterator[Emulator]:
    with kerberos_emulator(kdc, shared_dir / "shop-with-kerberos", databases=("Shop",)) as running:
        kdc.add_service("MSSQLSvc/alias:1433")
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
    assert found.text.startswith(NO_TICKET)
    assert found.fix.startswith("Name a keytab in KRB5_CLIENT_KTNAME")


@pytest.fixture
def windows(server: Emulator, postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Windows]:
    with (
        closing(server.connect_pymssql("Shop", autocommit=True)) as connection,
        warehouse_of_its_own(postgres) as warehouse,
    ):
        database = CdcDatabase("Shop", connection)
        database.run(
            "EXEC sys.sp_cdc_enable_db",
            "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Amount int)",
            "ALTER ROLE db_owner ADD MEMBER loader",
        )
        database.enable("Orders")
        yield Windows(database, warehouse, monkeypatch)
        database.run("EXEC sys.sp_cdc_disable_db", "DROP TABLE dbo.Orders")


@pytest.mark.usefixtures("ticket")
def test_windows_and_doctor_of_a_pipeline_that_logs_in_by_a_ticket(
    server: Emulator, windows: Windows, tmp_path: Path
) -> None:
    windows.configure(tmp_path, json.loads(source(server)))
    output = windows.run_both()
    assert f"good: login: localhost: a ticket of {CLIENT}, which lasts " in output
    assert json.loads(windows.carried[0])["authentication"] == "Kerberos"


@pytest.mark.usefixtures("ticket")
def test_doctor_names_what_is_wrong_with_a_ticket(
    server: Emulator, kdc: Kdc, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def findings() -> list[tuple[str, str, str]]:
        found = json.loads(windows.call("doctor", "shop", "--json", statuses=(4,)))
        return [(each["grade"], each["text"], each["fix"]) for each in found if each["check"] == "login"]

    windows.configure(tmp_path, json.loads(source(server, server_spn="MSSQLSvc/nowhere:1433")))
    (_, (grade, text, fix)) = findings()
    assert (grade, "or name the one that is as server_spn" in fix) == ("problem", True)
    assert text.startswith(f"{CLIENT} got no ticket for the server's service name: ")
    windows.configure(tmp_path, json.loads(source(server, server_spn="MSSQLSvc/another:1433")))
    (_, (grade, text, fix)) = findings()
    assert (grade, "more than five minutes apart" in fix) == ("problem", True)
    assert text.startswith("the server refused the login by Kerberos: ")
    for name, value in kdc.without_ticket.items():
        monkeypatch.setenv(name, value)
    ((grade, text, _),) = findings()
    assert (grade, text.startswith(NO_TICKET)) == ("problem", True)


@pytest.mark.usefixtures("ticket")
def test_keytab_replaces_a_ticket_that_ends_and_without_it_the_doctor_says_so(
    server: Emulator, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, keytab = tmp_path / "cache", tmp_path / "brief.keytab"
    kdc.administrate('addprinc -randkey -maxlife "2 sec" brief', f"ktadd -k {keytab} brief")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", source(server))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{keytab}")
    read_ticket()
    first = cache.read_bytes()
    wait_until(lambda: bool(read_ticket().principal) and cache.read_bytes() != first)
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{tmp_path / 'nothing'}")

    def found() -> Finding:
        return next(iter(CdcKind("shop").examine_login()))

    wait_until(lambda: found().grade is Grade.PROBLEM)
    assert found().text == "there is no ticket of Kerberos: the ticket in the cache has expired."


def test_clock_that_differs_from_that_of_the_domain_is_named(
    server: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", source(server))
    with running_kdc(tmp_path / "kdc", "-T", "2000") as ahead:
        config = ahead.folder / "krb5.conf"
        # A client of MIT takes over the clock of the KDC, unless it is configured not to, as others are.
        config.write_text(
            config.read_text("utf-8").replace("[libdefaults]", "[libdefaults]\n kdc_timesync = 0"), "utf-8"
        )
        for name, value in ahead.client.items():
            monkeypatch.setenv(name, value)
        (found,) = CdcKind("shop").examine_login()
    assert (found.grade, found.text) == (
        Grade.PROBLEM,
        "there is no ticket of Kerberos: Clock skew too great in KDC reply.",
    )
    assert found.fix == "Synchronise the clocks of this machine, of the domain and of the server by NTP."
