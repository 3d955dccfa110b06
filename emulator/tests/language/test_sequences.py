"""Sequences: their numbers in statements and defaults, their bounds, their place in the catalog."""

from __future__ import annotations

import pytest

from emulator_process import Emulator
from sql_client import SqlClient


@pytest.fixture(scope="module", autouse=True)
def schema(database: str, emulator: Emulator) -> None:
    connection = emulator.connect_pymssql(database, autocommit=True)
    SqlClient(connection).script(
        """
        CREATE SEQUENCE dbo.OrderNo AS int START WITH 1000 INCREMENT BY 10 MINVALUE 1000 NO CYCLE CACHE 5
        GO
        CREATE TABLE dbo.Orders (no_ int NOT NULL DEFAULT (NEXT VALUE FOR dbo.OrderNo) PRIMARY KEY,
            label AS (CONCAT('O', no_)), customer varchar(10))
        """
    )
    connection.close()


def test_a_sequence_gives_a_default_and_values_in_statements(client: SqlClient) -> None:
    client.run("INSERT INTO dbo.Orders (customer) VALUES ('a'), ('b')")
    client.run("INSERT INTO dbo.Orders (no_, customer) VALUES (NEXT VALUE FOR dbo.OrderNo, 'c')")
    assert client.rows("SELECT no_, customer FROM dbo.Orders ORDER BY no_") == [(1000, "a"), (1010, "b"), (1020, "c")]
    assert client.value("DECLARE @n int = NEXT VALUE FOR OrderNo; SELECT @n") == 1030
    rows = client.rows("SELECT CAST(current_value AS int), is_cycling FROM sys.sequences WHERE name = 'OrderNo'")
    assert rows == [(1030, False)]


def test_a_sequence_restarts_cycles_and_ends(client: SqlClient) -> None:
    client.script(
        """
        CREATE SEQUENCE dbo.Small AS tinyint START WITH 254
        GO
        CREATE SEQUENCE dbo.Round_ START WITH 2 MINVALUE 1 MAXVALUE 3 CYCLE
        """
    )
    assert [client.value("SELECT NEXT VALUE FOR dbo.Small") for _ in range(2)] == [254, 255]
    assert client.error("SELECT NEXT VALUE FOR dbo.Small")[0] == 11728
    client.run("ALTER SEQUENCE dbo.Small RESTART WITH 7")
    assert client.value("SELECT NEXT VALUE FOR dbo.Small") == 7
    assert [client.value("SELECT NEXT VALUE FOR dbo.Round_") for _ in range(4)] == [2, 3, 1, 2]


def test_a_sequence_is_dropped_when_nothing_uses_it(client: SqlClient) -> None:
    number, message = client.error("DROP SEQUENCE dbo.OrderNo")
    assert (number, "Orders" in message) == (3729, True)
    client.run("CREATE SEQUENCE dbo.Gone; DROP SEQUENCE IF EXISTS dbo.Gone, dbo.NeverWas")
    assert client.error("SELECT NEXT VALUE FOR dbo.Gone")[0] == 208
    assert client.error("CREATE SEQUENCE dbo.OrderNo")[0] == 2714
