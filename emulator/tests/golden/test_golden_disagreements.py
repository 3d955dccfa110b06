"""docs/emulator.md, "Where sources disagree" (docs/reference/sqlserver_cdc.md, "Contradictions"), where no other test
says what the emulator does."""

from __future__ import annotations

import pytest

from cdc_database import CdcDatabase
from emulator_process import Emulator


@pytest.mark.parametrize(
    ("key", "options", "expected"),
    [
        ("PRIMARY KEY", {}, True),
        ("", {}, False),
        ("CONSTRAINT ux UNIQUE", {"index_name": "N'ux'"}, True),
        ("PRIMARY KEY", {"supports_net_changes": "0"}, False),
    ],
)
def test_net_changes_are_supported_where_a_key_is_known(
    database: CdcDatabase, key: str, options: dict[str, str], expected: bool
) -> None:
    database.run(f"CREATE TABLE dbo.t (id int NOT NULL {key})")
    database.enable("t", **options)
    assert database.query("SELECT supports_net_changes AS net FROM cdc.change_tables") == [{"net": expected}]


def test_retention_may_be_as_long_as_the_error_says(database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    database.run("EXEC sys.sp_cdc_change_job N'cleanup', @retention = 52594800")
    assert database.error_of("EXEC sys.sp_cdc_change_job N'cleanup', @retention = 52594801") == 22994


@pytest.mark.parametrize("position", [0, -1, 9, 1000])
def test_bit_outside_of_a_mask_is_not_set(database: CdcDatabase, position: int) -> None:
    assert database.scalar(f"sys.fn_cdc_is_bit_set({position}, 0xFF)") in (0, False)


def test_database_is_none_of_azure(database: CdcDatabase, emulator: Emulator) -> None:
    assert database.error_of("SELECT * FROM cdc.cdc_jobs") == 208
    assert database.query("SELECT CAST(SERVERPROPERTY('EngineEdition') AS int) AS edition") == [{"edition": 3}]
    database.run("CREATE LOGIN owner_of_none WITH PASSWORD = 'Owner-1-Password'")
    try:
        database.run(
            "CREATE USER owner_of_none FOR LOGIN owner_of_none", "ALTER ROLE db_owner ADD MEMBER owner_of_none"
        )
        import pymssql

        with pymssql.connect(
            emulator.host, "owner_of_none", "Owner-1-Password", database.name, port=str(emulator.port)
        ) as connection:
            assert CdcDatabase(database.name, connection).error_of("EXEC sys.sp_cdc_enable_db") == 22902
    finally:
        database.run("DROP USER owner_of_none", "DROP LOGIN owner_of_none")


def test_large_values_have_no_limit_and_only_that_can_be_set(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Types": no error 7139."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(max))")
    database.enable("t")
    database.run(
        "INSERT dbo.t VALUES (1, REPLICATE(CAST('x' AS varchar(max)), 200000))",
        "EXEC sp_configure 'max text repl size', -1",
        "RECONFIGURE",
    )
    database.scan()
    assert [len(row["v"]) for row in database.change_table("dbo_t")] == [200000]
    (shown,) = database.query(
        "SELECT CAST(value_in_use AS int) AS value FROM sys.configurations WHERE name LIKE 'max text%'"
    )
    assert shown == {"value": -1}
    assert database.error_of("EXEC sp_configure 'max text repl size', 65536") == 49999
    assert database.error_of("EXEC sp_configure 'max', 1") == 15124
