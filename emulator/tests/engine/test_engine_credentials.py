"""The master key of a database and its scoped credentials."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine_client import Client

KEY = "CREATE MASTER KEY ENCRYPTION BY PASSWORD = N'a-Password-1'"
CREDENTIAL = "CREATE DATABASE SCOPED CREDENTIAL [hub] WITH IDENTITY = N'policy', SECRET = N'not-to-be-kept'"


@pytest.fixture(autouse=True)
def no_key(client: Client) -> None:
    client.run("IF EXISTS (SELECT 1 FROM sys.database_scoped_credentials) DROP DATABASE SCOPED CREDENTIAL hub")
    client.run("IF EXISTS (SELECT 1 FROM sys.symmetric_keys) DROP MASTER KEY")


def test_credential_with_a_secret_needs_a_master_key(client: Client) -> None:
    assert client.error(CREDENTIAL).number == 15581
    client.run(KEY)
    client.run(CREDENTIAL)
    assert client.rows("SELECT name, credential_identity FROM sys.database_scoped_credentials") == [("hub", "policy")]
    assert client.rows("SELECT name, algorithm_desc FROM sys.symmetric_keys") == [
        ("##MS_DatabaseMasterKey##", "AES_256")
    ]


def test_credential_without_a_secret_needs_no_master_key(client: Client) -> None:
    client.run("CREATE DATABASE SCOPED CREDENTIAL hub WITH IDENTITY = 'Managed Identity'")
    assert client.rows("SELECT credential_identity FROM sys.database_scoped_credentials") == [("Managed Identity",)]


def test_names_are_there_once(client: Client) -> None:
    client.run(KEY)
    client.run(CREDENTIAL)
    assert client.error(KEY).number == 15578
    assert client.error(CREDENTIAL.replace("hub", "HUB")).number == 15530


def test_key_outlives_its_credentials(client: Client) -> None:
    client.run(KEY)
    client.run(CREDENTIAL)
    assert client.error("DROP MASTER KEY").number == 15580
    client.run("ALTER DATABASE SCOPED CREDENTIAL hub WITH IDENTITY = 'other', SECRET = 'x'")
    assert client.rows("SELECT credential_identity FROM sys.database_scoped_credentials") == [("other",)]
    client.run("DROP DATABASE SCOPED CREDENTIAL hub; DROP MASTER KEY")
    assert client.error("DROP DATABASE SCOPED CREDENTIAL hub").number == 15151
    assert client.error("ALTER DATABASE SCOPED CREDENTIAL hub WITH IDENTITY = 'a'").number == 15151
    assert client.error("DROP MASTER KEY").number == 15151


def test_members_of_ddladmin_may_not(client: Client, connect: Callable[..., Client]) -> None:
    client.run("CREATE LOGIN keeper WITH PASSWORD = N'a-Password-2'; CREATE USER keeper FOR LOGIN keeper")
    client.run("ALTER ROLE db_ddladmin ADD MEMBER keeper")
    assert connect("keeper", "a-Password-2").error(KEY).number == 15247


def test_preview_features_are_unknown_to_sql_server_2022(client: Client) -> None:
    assert client.error("ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = ON").number == 49999
