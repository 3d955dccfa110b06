"""Change data capture of keys that are equal by their collation only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from emulator_process import Emulator
from sql_client import SqlClient


@pytest.fixture(scope="module")
def client(emulator: Emulator) -> Iterator[SqlClient]:
    with contextlib.closing(emulator.connect_pymssql("master", autocommit=True)) as master:
        master.cursor().execute("CREATE DATABASE CasedKeys")
    with contextlib.closing(emulator.connect_pymssql("CasedKeys", autocommit=True)) as connection:
        opened = SqlClient(connection)
        opened.run("EXEC sys.sp_cdc_enable_db")
        yield opened
        opened.run("EXEC sys.sp_cdc_disable_db")


@pytest.mark.parametrize(
    ("collation", "net"),
    [
        ("SQL_Latin1_General_CP1_CI_AS", [(4, "ABC", 2)]),
        ("Latin1_General_CS_AS", [(1, "abc", 1), (2, "ABC", 2)]),
        ("Latin1_General_BIN2", [(1, "abc", 1), (2, "ABC", 2)]),
    ],
)
def test_net_changes_group_keys_by_their_collation(
    client: SqlClient, collation: str, net: list[tuple[int, str, int]]
) -> None:
    table = f"Keys_{collation}"
    client.run(f"CREATE TABLE dbo.{table} (code nvarchar(10) COLLATE {collation} NOT NULL PRIMARY KEY, v int)")
    client.run(f"EXEC sys.sp_cdc_enable_table N'dbo', N'{table}', @role_name = NULL, @supports_net_changes = 1")
    client.run(f"INSERT dbo.{table} VALUES (N'abc', 1)")
    client.run("EXEC emulator.run_capture")
    client.run(f"DELETE dbo.{table} WHERE code = N'abc'; INSERT dbo.{table} VALUES (N'ABC', 2)")
    client.run("EXEC emulator.run_capture")
    window = (
        f"DECLARE @from binary(10) = (SELECT sys.fn_cdc_increment_lsn(MIN(__$start_lsn)) FROM cdc.dbo_{table}_CT),"
        " @to binary(10) = sys.fn_cdc_get_max_lsn()"
    )
    columns = "__$operation, code, v"
    found = client.rows(
        f"{window} SELECT {columns} FROM cdc.fn_cdc_get_net_changes_dbo_{table}(@from, @to, N'all') ORDER BY v"
    )
    assert found == net
    assert client.rows(
        "SELECT c.collation_name FROM sys.columns c"
        f" WHERE c.object_id = OBJECT_ID('cdc.dbo_{table}_CT') AND c.name = 'code'"
    ) == [(collation,)]
    everything = client.rows(
        f"{window} SELECT {columns} FROM cdc.fn_cdc_get_all_changes_dbo_{table}(@from, @to, N'all') ORDER BY v"
    )
    assert everything == [(1, "abc", 1), (2, "ABC", 2)]


def test_update_of_a_key_in_case_only_is_a_delete_and_an_insert(client: SqlClient) -> None:
    client.run("CREATE TABLE dbo.Cased (code varchar(10) NOT NULL PRIMARY KEY, v int)")
    client.run("EXEC sys.sp_cdc_enable_table N'dbo', N'Cased', @role_name = NULL, @supports_net_changes = 1")
    client.run("INSERT dbo.Cased VALUES ('abc', 1); UPDATE dbo.Cased SET code = 'ABC' WHERE code = 'Abc'")
    client.run("EXEC emulator.run_capture")
    assert client.rows("SELECT __$operation, code FROM cdc.dbo_Cased_CT ORDER BY __$start_lsn, __$command_id") == [
        (2, "abc"),
        (1, "abc"),
        (2, "ABC"),
    ]
    client.run("DECLARE @low binary(10) = sys.fn_cdc_get_min_lsn('DBO_cased')")
    assert client.rows(
        "SELECT __$operation, code FROM cdc.fn_cdc_get_net_changes_dbo_Cased(sys.fn_cdc_get_min_lsn('dbo_Cased'),"
        " sys.fn_cdc_get_max_lsn(), N'all')"
    ) == [(2, "ABC")]
