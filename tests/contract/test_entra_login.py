"""Logins to the source by Microsoft Entra ID: whole windows, each kind of identity, and each refusal as one message."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cdc_database import CdcDatabase, cdc_database
from embedded_postgres import EmbeddedPostgres
from emulator_process import Emulator
from floodmark.core.errors import ConfigError, FloodmarkError, SourceLoginError, SourceUnavailableError
from floodmark.sources.sqlserver import login
from floodmark.sources.sqlserver.driver import SqlServerConnection, connect
from passwordless_windows import Windows, warehouse_of_its_own
from token_service import CLIENT, IDENTITY, IDENTITY_HEADER, SECRET, TENANT, TokenService, token_service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenService]:
    with token_service(tmp_path_factory.mktemp("tokens")) as started:
        yield started


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, service: TokenService) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", service.url)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(service.ca_file))
    login._credential.cache_clear()
    service.asked.clear()
    service.claims, service.lifetime_seconds = {}, 3600


@pytest.fixture(scope="module")
def database(emulator: Emulator, service: TokenService) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Amount int)",
            "CREATE LOGIN [loader of the shop] WITH PASSWORD = N'Unused-1'",
            "CREATE USER loader FOR LOGIN [loader of the shop]",
            "ALTER ROLE db_owner ADD MEMBER loader",
        )
        for subject in (CLIENT, IDENTITY):
            made.run(
                f"EXEC emulator.accept_tokens @key = N'{service.public_key}', @subject = N'{subject}',"
                " @login = N'loader of the shop'"
            )
        made.enable("Orders")
        yield made
        made.run("DROP LOGIN [loader of the shop]")


@pytest.fixture
def windows(database: CdcDatabase, postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Windows]:
    with warehouse_of_its_own(postgres) as warehouse:
        yield Windows(database, warehouse, monkeypatch)


@pytest.fixture
def at(emulator: Emulator, database: CdcDatabase) -> SqlServerConnection:
    return SqlServerConnection(
        emulator.host,
        emulator.port,
        database.name,
        CLIENT,
        SECRET,
        ca_file=str(emulator.ca_file),
        authentication="ActiveDirectoryServicePrincipal",
        tenant=TENANT,
    )


def user_of(at: SqlServerConnection) -> str:
    with connect(at) as session:
        return str(session.fetch("SELECT SUSER_SNAME()")[0][0])


def refusal_of(at: SqlServerConnection) -> FloodmarkError:
    """Return the error of a connect: one line that names the connection, and no secret."""
    with pytest.raises(FloodmarkError) as caught:
        connect(at)
    text = caught.value.in_full
    assert text.startswith(f"{at}: ")
    assert "\n" not in text
    assert at.password not in text or not at.password
    return caught.value


# --------------------------------------------------------------------------------------------------------------------


def source(at: SqlServerConnection) -> dict[str, Any]:
    extra = {"ca_file": at.ca_file, "authentication": "activedirectoryserviceprincipal", "tenant": TENANT}
    fields = {"conn_type": "mssql", "host": at.host, "port": at.port, "schema": at.database, "extra": extra}
    return fields | {"login": CLIENT, "password": SECRET}


def test_windows_and_doctor_of_a_pipeline_that_logs_in_by_a_token(
    at: SqlServerConnection, windows: Windows, tmp_path: Path
) -> None:
    windows.configure(tmp_path, source(at))
    output = windows.run_both()
    assert f"good: login: {at.host}: a token of client {CLIENT} of tenant {TENANT} for https://database" in output
    assert json.loads(windows.carried[0])["tenant"] == TENANT
    assert "eyJ" not in windows.carried[0], "no token travels"
    assert SECRET not in output


def test_doctor_names_what_is_wrong_with_a_token(
    at: SqlServerConnection, windows: Windows, service: TokenService, tmp_path: Path
) -> None:
    def findings() -> list[tuple[str, str, str]]:
        found = json.loads(windows.call("doctor", "shop", "--json", statuses=(4,)))
        return [(each["grade"], each["text"], each["fix"]) for each in found if each["check"] == "login"]

    windows.configure(tmp_path, source(at))
    service.claims = {"aud": "https://vault.azure.net"}
    ((grade, text, fix),) = findings()
    assert grade == "problem"
    assert " for https://vault.azure.net, which lasts " in text
    assert fix == "The server takes tokens for https://database.windows.net/ only."
    login._credential.cache_clear()
    service.claims = {"appid": "a stranger"}
    (_, (grade, text, fix)) = findings()
    assert grade == "problem"
    assert text.startswith(f"the server refused the token of client {CLIENT}")
    assert "FROM EXTERNAL PROVIDER" in fix
    windows.configure(tmp_path, source(at) | {"password": "another-Secret"})
    ((grade, text, fix),) = findings()
    assert grade == "problem"
    assert text.startswith("Microsoft Entra ID gave no token to client")
    assert "its secret or certificate is valid" in fix


def test_connection_that_has_travelled_makes_its_own_credential(at: SqlServerConnection) -> None:
    travelled = SqlServerConnection.from_json(at.portable().to_json())
    assert user_of(travelled) == "loader of the shop"
    assert SECRET not in repr(travelled) + str(travelled)


def test_token_is_asked_for_once_and_again_when_it_ends(at: SqlServerConnection, service: TokenService) -> None:
    path = f"/{TENANT}/oauth2/v2.0/token"
    assert [user_of(at), user_of(at)] == ["loader of the shop"] * 2
    assert service.asked.count(path) == 1
    login._credential.cache_clear()
    service.lifetime_seconds = 60  # within the minutes before its end a token is renewed
    assert [user_of(at), user_of(at)] == ["loader of the shop"] * 2
    assert service.asked.count(path) == 3


@pytest.mark.parametrize("user", ["", IDENTITY])
def test_managed_identity_needs_no_secret(
    at: SqlServerConnection, service: TokenService, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{service.url}/identity")
    monkeypatch.setenv("IDENTITY_HEADER", IDENTITY_HEADER)
    managed = replace(at, user=user, password="", tenant="", authentication="ActiveDirectoryManagedIdentity")
    assert user_of(managed) == "loader of the shop"
    assert service.asked == ["/identity"]
    assert str(managed).startswith(user or "ActiveDirectoryManagedIdentity@")


def test_workload_identity_and_the_default_chain_find_the_token_of_the_machine(
    at: SqlServerConnection, service: TokenService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    service.assertion_key = _public(key)
    file = tmp_path / "federated"
    file.write_text(jwt.encode({"sub": "system:serviceaccount:floodmark"}, key, algorithm="RS256"), encoding="utf-8")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(file))
    workload = replace(at, password="", authentication="ActiveDirectoryWorkloadIdentity")
    assert user_of(workload) == "loader of the shop"
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    monkeypatch.setenv("AZURE_CLIENT_ID", CLIENT)
    assert user_of(replace(workload, user="", tenant="")) == "loader of the shop"
    monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
    default = replace(workload, user="", tenant="", authentication="ActiveDirectoryDefault")
    assert user_of(default) == "loader of the shop"


def test_application_proves_itself_by_a_certificate_which_travels(
    at: SqlServerConnection, service: TokenService, tmp_path: Path
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    service.assertion_key = _public(key)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "application")])
    now = datetime.now(UTC)
    certificate = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1)).sign(
        key, hashes.SHA256()
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"pass phrase"),
    )
    file = tmp_path / "application.pem"
    file.write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
    proved = replace(at, password="pass phrase", certificate_file=str(file))
    assert user_of(proved) == "loader of the shop"
    travelled = SqlServerConnection.from_json(proved.portable().to_json())
    assert "PRIVATE KEY" not in repr(travelled)
    file.unlink()
    assert user_of(replace(travelled, certificate_file="/nowhere")) == "loader of the shop"
    missing = refusal_of(proved)
    assert isinstance(missing, ConfigError)
    assert "certificate" in str(missing)
    assert "No such file" in str(missing)
    wrong = refusal_of(replace(travelled, password="another"))
    assert isinstance(wrong, SourceLoginError)


# --------------------------------------------------------------------------------------------------------------------


def test_wrong_secret_is_refused_by_the_token_service(at: SqlServerConnection) -> None:
    refused = refusal_of(replace(at, password="another-Secret"))
    assert isinstance(refused, SourceLoginError)
    assert f"Microsoft Entra ID gave no token to client {CLIENT} of tenant {TENANT}: AADSTS7000215" in str(refused)
    assert "its secret or certificate is valid" in refused.hint


def test_wrong_tenant_is_named(at: SqlServerConnection) -> None:
    refused = refusal_of(replace(at, tenant="99999999-2222-3333-4444-555555555555"))
    assert isinstance(refused, SourceLoginError)
    assert "of tenant 99999999" in str(refused)
    assert "Check the tenant" in refused.hint


def test_token_service_that_is_not_there_is_tried_again(
    at: SqlServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://localhost:1")
    refused = refusal_of(at)
    assert isinstance(refused, SourceUnavailableError)
    assert "the token service localhost:1 cannot be reached" in str(refused)


@pytest.mark.parametrize("claims", [{"appid": "a stranger"}, {"aud": "https://vault.azure.net"}])
def test_token_that_the_server_refuses_is_not_tried_again(
    at: SqlServerConnection, service: TokenService, claims: dict[str, object]
) -> None:
    service.claims = claims
    refused = refusal_of(at)
    assert isinstance(refused, SourceLoginError)
    assert f"the server refused the token of client {CLIENT} of tenant {TENANT}: " in str(refused)
    assert "FROM EXTERNAL PROVIDER" in refused.hint


def test_missing_package_is_named(at: SqlServerConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_azure(name: str, *arguments: Any) -> Any:
        if name.startswith("azure"):
            raise ModuleNotFoundError("No module named 'azure'", name="azure")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_azure)
    refused = refusal_of(at)
    assert isinstance(refused, ConfigError)
    assert "No module named 'azure'" in str(refused)
    assert refused.hint == "Install floodmark[entra]."


def test_other_clouds_are_refused_by_name(at: SqlServerConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/")
    assert "names login.microsoftonline.us" in str(refusal_of(at))


def _public(key: rsa.RSAPrivateKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()
