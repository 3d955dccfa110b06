"""How a connection says that it logs in: what each way needs, and what would have no effect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from floodmark.core.errors import ConfigError
from floodmark.sources.cdc.kind import CdcKind
from floodmark.sources.sqlserver.driver import SqlServerConnection, _connection_string

PRINCIPAL = {"authentication": "ActiveDirectoryServicePrincipal", "tenant": "t-1"}
KERBEROS = {"authentication": "Kerberos"}
MANAGED = {"authentication": "ActiveDirectoryManagedIdentity"}


def connection(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], login: str = "", password: str = ""
) -> SqlServerConnection:
    fields = {"conn_type": "mssql", "host": "db", "schema": "Shop", "login": login, "password": password}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields | {"extra": extra}))
    return CdcKind("shop").database()


def test_login_with_a_password_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    found = connection(monkeypatch, {}, "reader", "s3cret")
    assert (found.authentication, found.user, found.password) == ("SqlPassword", "reader", "s3cret")
    assert "UID={reader};PWD={s3cret};" in _connection_string(found)
    assert connection(monkeypatch, {"Authentication": "sqlpassword"}, "reader", "s3cret") == found
    yesterdays = {
        name: value for name, value in json.loads(found.to_json()).items() if name in ("host", "port", "user")
    }
    assert SqlServerConnection.from_json(json.dumps(yesterdays | {"database": "Shop"})).authentication == "SqlPassword"


def test_secret_of_an_application_is_in_no_connection_string(monkeypatch: pytest.MonkeyPatch) -> None:
    found = connection(monkeypatch, PRINCIPAL, "client-1", "s3cret")
    assert (found.user, found.tenant, found.authentication) == ("client-1", "t-1", PRINCIPAL["authentication"])
    assert "s3cret" not in _connection_string(found) + repr(found)
    assert "UID" not in _connection_string(found)
    by_file = connection(monkeypatch, PRINCIPAL | {"certificate": "/etc/app.pem"}, "client-1")
    assert (by_file.certificate_file, by_file.password) == ("/etc/app.pem", "")


@pytest.mark.parametrize("word", ["ActiveDirectoryMsi", "activedirectorymanagedidentity"])
def test_managed_identity_has_two_names_and_needs_no_login(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    found = connection(monkeypatch, {"authentication": word})
    assert (found.authentication, found.user) == ("ActiveDirectoryManagedIdentity", "")
    assert str(found) == "ActiveDirectoryManagedIdentity@db:1433/Shop"


def test_kerberos_has_two_names_and_its_service_name_fits_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    found = connection(monkeypatch, {"Trusted_Connection": "Yes", "ServerSPN": "MSSQLSvc/db:1433"})
    assert found == connection(monkeypatch, KERBEROS | {"server_spn": "MSSQLSvc/db:1433"})
    assert "Trusted_Connection={yes};ServerSPN={MSSQLSvc/db:1433};" in _connection_string(found)
    assert "ServerSPN={MSSQLSvc@db:1433};" in _connection_string(found, "mssql-odbc")
    assert "UID" not in _connection_string(found)
    assert not connection(monkeypatch, {"trusted_connection": "no"}, "reader", "s3cret").server_spn


@pytest.mark.parametrize(
    ("extra", "login", "password", "words"),
    [
        ({}, "", "s3cret", "it has no login"),
        (PRINCIPAL, "", "s3cret", "it has no login .the client id of the application"),
        (PRINCIPAL, "client-1", "", "it has no password .the secret of the application., and no certificate"),
        ({"authentication": PRINCIPAL["authentication"]}, "client-1", "s3cret", "it has no tenant in its extra"),
        ({"tenant": "t-1"}, "reader", "s3cret", "its tenant has no effect with authentication SqlPassword"),
        (MANAGED, "", "s3cret", "its password has no effect with authentication ActiveDirectoryManagedIdentity"),
        (KERBEROS, "reader", "", "its login has no effect with authentication Kerberos"),
        (KERBEROS | {"server_spn": "MSSQLSvc/db:1433@REALM"}, "", "", "server_spn is .*, which is no service name"),
        (KERBEROS | {"trusted_connection": "yes"}, "", "", "its extra has authentication twice"),
        ({"server_spn": "MSSQLSvc/db"}, "reader", "s3cret", "its server_spn has no effect"),
        (MANAGED | {"certificate": "/c.pem"}, "", "", "its certificate has no effect"),
        (
            {"authentication": "ActiveDirectoryInteractive"},
            "me",
            "",
            "Interactive', expected one of Sql",
        ),
    ],
)
def test_what_is_missing_or_without_effect_is_refused(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], login: str, password: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        connection(monkeypatch, extra, login, password)
    assert "s3cret" not in str(caught.value)
