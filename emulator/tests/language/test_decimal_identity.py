"""Identity columns of decimal and numeric, as schemas of older tools have them."""

from __future__ import annotations

from decimal import Decimal

import pymssql
import pytest

from emulator_process import Emulator
from sql_client import SqlClient


def test_rows_are_numbered_and_the_functions_say_the_last_number(client: SqlClient) -> None:
    client.run("CREATE TABLE d1 (id numeric(10, 0) IDENTITY(5, 3) PRIMARY KEY, v int)")
    assert client.rows("INSERT d1 (v) OUTPUT inserted.id VALUES (1), (2)") == [(Decimal(5),), (Decimal(8),)]
    asked = "SELECT SCOPE_IDENTITY(), @@IDENTITY, IDENT_CURRENT('d1'), IDENT_SEED('d1'), IDENT_INCR('d1')"
    assert client.rows(asked) == [(8, 8, 8, 5, 3)]
    assert client.rows("SELECT id, v FROM d1 ORDER BY id") == [(Decimal(5), 1), (Decimal(8), 2)]
    shown = (
        "SELECT t.name, c.precision, c.scale, c.is_identity, c.is_nullable, c.seed_value, c.increment_value,"
        " c.last_value"
        " FROM sys.identity_columns c JOIN sys.types t ON t.user_type_id = c.user_type_id"
        " WHERE c.object_id = OBJECT_ID('d1')"
    )
    assert client.rows(shown) == [("numeric", 10, 0, True, False, 5, 3, 8)]


def test_explicit_values_move_the_counter(client: SqlClient) -> None:
    client.run("CREATE TABLE d2 (id decimal(18, 0) IDENTITY NOT NULL, v int)")
    assert client.error("INSERT d2 (id, v) VALUES (7, 1)")[0] == 544
    client.run(
        "SET IDENTITY_INSERT d2 ON; INSERT d2 (id, v) VALUES (100000000000000000, 1); SET IDENTITY_INSERT d2 OFF"
    )
    client.run("INSERT d2 (v) VALUES (2)")
    assert client.value("SELECT MAX(id) FROM d2") == Decimal(100000000000000001)
    client.run("TRUNCATE TABLE d2; INSERT d2 (v) VALUES (3)")
    assert client.rows("SELECT id FROM d2") == [(Decimal(1),)]


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        ("numeric(2, 0)", "numeric"),
        ("tinyint", "tinyint"),
        ("smallint", "smallint"),
        ("int", "int"),
        ("bigint", "bigint"),
    ],
)
def test_number_beyond_the_type_is_an_overflow(client: SqlClient, declared: str, named: str) -> None:
    last = {"numeric": 99, "tinyint": 255, "smallint": 2**15 - 1, "int": 2**31 - 1, "bigint": 2**63 - 1}[named]
    client.run(f"CREATE TABLE d3_{named} (id {declared} IDENTITY({last}, 1), v int); INSERT d3_{named} VALUES (1)")
    number, message = client.error(f"INSERT d3_{named} VALUES (2)")
    assert number == 8115
    assert message.startswith(f"Arithmetic overflow error converting IDENTITY to data type {named}.")
    assert client.value(f"SELECT COUNT(*) FROM d3_{named}") == 1


def test_values_beyond_bigint_are_kept_and_not_counted(client: SqlClient) -> None:
    client.run("CREATE TABLE d4 (id numeric(38, 0) IDENTITY, v int); INSERT d4 VALUES (1)")
    large = 10**30
    client.run(f"SET IDENTITY_INSERT d4 ON; INSERT d4 (id, v) VALUES ({large}, 1); SET IDENTITY_INSERT d4 OFF")
    assert client.rows("SELECT id FROM d4 ORDER BY id") == [(Decimal(1),), (Decimal(large),)]
    for statement in ("INSERT d4 (v) VALUES (2)", "SELECT SCOPE_IDENTITY()", "SELECT IDENT_CURRENT('d4')"):
        number, message = client.error(statement)
        assert number == 49999
        assert "identity values beyond bigint" in message
    assert client.error(f"CREATE TABLE d4b (id numeric(38, 0) IDENTITY({large}, 1))")[0] == 49999


@pytest.mark.parametrize(
    ("declared", "number"),
    [
        ("numeric(10, 2) IDENTITY", 2749),
        ("varchar(10) IDENTITY(1, 1)", 2749),
        ("money IDENTITY", 2749),
        ("numeric(10, 0) IDENTITY(1, 0)", 2753),
        ("numeric(3, 0) IDENTITY(1000, 1)", 2752),
    ],
)
def test_column_that_cannot_count_is_refused(client: SqlClient, declared: str, number: int) -> None:
    assert client.error(f"CREATE TABLE d5 (id {declared})")[0] == number


def test_column_is_added_to_rows_and_to_temp_tables_and_table_variables(client: SqlClient) -> None:
    client.run("CREATE TABLE d6 (v int); INSERT d6 VALUES (10), (20)")
    client.run("ALTER TABLE d6 ADD id numeric(9, 0) IDENTITY(3, 1)")
    client.run("INSERT d6 (v) VALUES (30)")
    assert sorted(client.rows("SELECT id FROM d6")) == [(Decimal(3),), (Decimal(4),), (Decimal(5),)]
    client.run("CREATE TABLE #d6 (id numeric(9, 0) IDENTITY, v int); INSERT #d6 VALUES (1), (2)")
    assert client.value("SELECT MAX(id) FROM #d6") == Decimal(2)
    variable = "DECLARE @t TABLE (id numeric(9, 0) IDENTITY, v int); INSERT @t VALUES (1), (2); SELECT MAX(id) FROM @t"
    assert client.value(variable) == Decimal(2)
    assert client.value(variable) == Decimal(2)


def test_login_without_rights_on_the_counter_inserts(client: SqlClient, emulator: Emulator, database: str) -> None:
    client.run("CREATE TABLE d7 (id numeric(9, 0) IDENTITY, v int)")
    client.run("CREATE LOGIN d7_login WITH PASSWORD = 'Str0ng-Password'; CREATE USER d7_login")
    client.run("GRANT INSERT, SELECT ON d7 TO d7_login")
    user = {"user": "d7_login", "password": "Str0ng-Password"}
    with pymssql.connect(emulator.host, port=str(emulator.port), database=database, autocommit=True, **user) as opened:
        clerk = SqlClient(opened)
        clerk.run("INSERT d7 (v) VALUES (1)")
        assert clerk.value("SELECT SCOPE_IDENTITY()") == 1


def test_change_table_has_the_number_as_plain_numeric(client: SqlClient) -> None:
    client.run("EXEC sys.sp_cdc_enable_db")
    client.run("CREATE TABLE d8 (id numeric(12, 0) IDENTITY PRIMARY KEY, v int)")
    client.run("EXEC sys.sp_cdc_enable_table N'dbo', N'd8', @role_name = NULL")
    client.run("EXEC sys.sp_cdc_stop_job")
    client.run("INSERT d8 VALUES (1)", None)
    client.run("UPDATE d8 SET v = 2")
    client.run("EXEC emulator.run_capture")
    assert client.rows("SELECT [__$operation], id FROM cdc.dbo_d8_CT ORDER BY [__$seqval], [__$operation]") == [
        (2, Decimal(1)),
        (3, Decimal(1)),
        (4, Decimal(1)),
    ]
    shown = "SELECT t.name, c.precision, c.is_identity FROM sys.columns c JOIN sys.types t ON t.user_type_id ="
    shown += " c.user_type_id WHERE c.object_id = OBJECT_ID('cdc.dbo_d8_CT') AND c.name = 'id'"
    assert client.rows(shown) == [("numeric", 12, False)]
    client.run("EXEC sys.sp_cdc_disable_db")
