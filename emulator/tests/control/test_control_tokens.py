"""Logins by tokens of Microsoft Entra ID: what is accepted, as whom, and the state of each refusal."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import mssql_python
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cdc_database import CdcDatabase
from emulator_process import Emulator, trust
from raw_client import LOGIN, PRELOGIN, RawClient
from token_service import CLIENT, TokenService

_FEDERATED_PRELOGIN = b"\x01\x00\x0b\x00\x01\x06\x00\x0c\x00\x01\xff\x02\x01"
SECURITY_TOKEN, ADAL = 1, 2


class Token(NamedTuple):
    token: str
    expires_on: int = int(time.time()) + 3600

    def get_token(self, *_scopes: str) -> Token:
        return self


@pytest.fixture
def service(shop: CdcDatabase) -> Iterator[TokenService]:
    """A token service whose application is the login app, a user of the database."""
    made = TokenService()
    shop.run(
        "CREATE LOGIN app WITH PASSWORD = N'Unused-1'",
        "CREATE USER app FOR LOGIN app",
        f"EXEC emulator.accept_tokens @key = N'{made.public_key}', @subject = N'{CLIENT.upper()}', @login = N'APP'",
    )
    yield made
    shop.run("DROP USER app", "DROP LOGIN app")


def connect(emulator: Emulator, database: str, token: str) -> Any:
    text = f"Server={emulator.host},{emulator.port};Database={database};Encrypt=yes;ConnectRetryCount=0"
    trust(emulator.ca_file)
    return mssql_python.connect(text, token_provider=Token(token))


def login_with(token: str, library: int = SECURITY_TOKEN) -> bytes:
    """Return LOGIN7 with the feature FEDAUTH alone, and its echo of PRELOGIN."""
    given = token.encode("utf-16-le")
    data = bytes((library << 1 | 1,)) + struct.pack("<I", len(given)) + given
    features = b"\x02" + struct.pack("<I", len(data)) + data + b"\xff"
    pairs = b"".join(struct.pack("<HH", 94, 4 if at == 5 else 0) for at in range(9))
    head = struct.pack("<IIIIIIBBBBiI", 98 + len(features), 0x74000004, 4096, 0, 0, 0, 0, 0, 0, 0x10, 0, 0)
    rest = b"\x00" * 6 + struct.pack("<6HI", 0, 0, 0, 0, 0, 0, 0)
    return head + pairs + rest + struct.pack("<I", 98) + features


def refusal(emulator: Emulator, token: str, library: int = SECURITY_TOKEN) -> tuple[int, int] | None:
    """Log in; number and state of the error, or None."""
    with RawClient(emulator.port) as client:
        client.send(PRELOGIN, _FEDERATED_PRELOGIN)
        assert client.read().endswith(b"\x01"), "FEDAUTHREQUIRED"
        client.send(LOGIN, login_with(token, library))
        answer = client.read()
    if answer[0] == 0xAA:
        number, state = struct.unpack_from("<IB", answer, 3)
        return number, state
    assert b"\xae\x02\x00\x00\x00\x00\xff" in answer, "FEATUREEXTACK"
    return None


def test_token_becomes_the_login_of_its_subject(
    shop: CdcDatabase, controlled_emulator: Emulator, service: TokenService
) -> None:
    with closing(connect(controlled_emulator, shop.name, service.sign())) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT SUSER_SNAME(), USER_NAME(), IS_SRVROLEMEMBER('sysadmin')")
        assert tuple(cursor.fetchone()) == ("app", "app", 0)


def test_refusals_have_a_state_for_each_reason(controlled_emulator: Emulator, service: TokenService) -> None:
    past = int(time.time()) - 3600
    assert refusal(controlled_emulator, service.sign()) is None
    assert refusal(controlled_emulator, TokenService().sign()) == (18456, 103), "another key"
    assert refusal(controlled_emulator, "no token") == (18456, 103)
    assert refusal(controlled_emulator, service.sign(aud="https://vault.azure.net")) == (18456, 104)
    assert refusal(controlled_emulator, service.sign(iat=past, nbf=past, exp=past + 60)) == (18456, 105)
    assert refusal(controlled_emulator, service.sign(appid="another")) == (18456, 132)
    assert refusal(controlled_emulator, service.sign(), ADAL) == (49999, 1), "the client waits for FEDAUTHINFO"


def test_disabled_login_is_refused_by_its_token_too(
    shop: CdcDatabase, controlled_emulator: Emulator, service: TokenService
) -> None:
    shop.run("ALTER LOGIN app DISABLE")
    assert refusal(controlled_emulator, service.sign()) == (18456, 1)
    with pytest.raises(mssql_python.Error, match="Login failed"):
        connect(controlled_emulator, shop.name, service.sign())


def test_another_key_ends_the_subjects_of_the_former_one(
    shop: CdcDatabase, controlled_emulator: Emulator, service: TokenService
) -> None:
    other = TokenService()
    shop.run(f"EXEC emulator.accept_tokens @key = N'{other.public_key}', @subject = N'other', @login = N'app'")
    assert refusal(controlled_emulator, service.sign()) == (18456, 103)
    assert refusal(controlled_emulator, other.sign()) == (18456, 132)
    assert refusal(controlled_emulator, other.sign(appid="other")) is None


def test_key_and_login_that_mean_nothing_are_refused(shop: CdcDatabase, service: TokenService) -> None:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    curve = ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(serialization.Encoding.PEM, form).decode()
    for key in ("no PEM", curve):
        call = f"EXEC emulator.accept_tokens @key = N'{key}', @subject = N's', @login = N'app'"
        assert shop.error_of(call) == 49998, key
    call = f"EXEC emulator.accept_tokens @key = N'{service.public_key}', @subject = N's', @login = N'nobody'"
    assert shop.error_of(call) == 49998
