"""Reads of captured changes by readers who may not see everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymssql
import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator

PASSWORD = "R3ader!secret"


@pytest.fixture
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        yield made


@contextmanager
def reader(emulator: Emulator, database: CdcDatabase) -> Iterator[Any]:
    """A login that reads every table and nothing more."""
    login = f"reader_{database.name}"
    database.run(
        f"CREATE LOGIN {login} WITH PASSWORD = '{PASSWORD}'",
        f"CREATE USER {login} FOR LOGIN {login}",
        f"ALTER ROLE db_datareader ADD MEMBER {login}",
    )
    try:
        with closing(
            pymssql.connect(emulator.host, login, PASSWORD, database.name, port=str(emulator.port), autocommit=True)
        ) as connection:
            yield connection
    finally:
        database.run(f"DROP LOGIN {login}")


def rows(connection: Any, query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def test_change_rows_show_what_a_mask_hides_in_the_table(emulator: Emulator, database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.m (id int PRIMARY KEY, email varchar(50) MASKED WITH (FUNCTION = 'email()'))")
    database.enable("m")
    database.run("INSERT dbo.m VALUES (1, 'someone@example.org')")
    database.scan()
    with reader(emulator, database) as connection:
        assert rows(connection, "SELECT email FROM dbo.m") == [("sXXX@XXXX.com",)]
        assert rows(connection, "SELECT email FROM cdc.dbo_m_CT") == [("someone@example.org",)]
        changes = (
            "SELECT email FROM cdc.fn_cdc_get_all_changes_dbo_m(sys.fn_cdc_get_min_lsn(N'dbo_m'),"
            " sys.fn_cdc_get_max_lsn(), N'all')"
        )
        assert rows(connection, changes) == [("someone@example.org",)]


def test_mask_that_is_added_later_is_in_the_ddl_history(database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.m (id int PRIMARY KEY, v varchar(50))")
    database.enable("m")
    database.run(
        "ALTER TABLE dbo.m ALTER COLUMN v ADD MASKED WITH (FUNCTION = 'default()')", "INSERT dbo.m VALUES (1, 'a')"
    )
    database.scan()
    assert [row["v"] for row in database.change_table("dbo_m")] == ["a"]
    assert "MASKED" in database.query("SELECT ddl_command FROM cdc.ddl_history")[0]["ddl_command"]


def test_change_rows_show_what_a_filter_predicate_hides_in_the_table(emulator: Emulator, database: CdcDatabase) -> None:
    database.run(
        "CREATE TABLE dbo.f (id int PRIMARY KEY, region varchar(9))",
        "CREATE FUNCTION dbo.passes (@region varchar(9)) RETURNS TABLE AS RETURN SELECT 1 AS x WHERE @region = 'north'",
    )
    database.enable("f")
    database.run(
        "INSERT dbo.f VALUES (1, 'north'), (2, 'south')",
        "CREATE SECURITY POLICY dbo.regions ADD FILTER PREDICATE dbo.passes(region) ON dbo.f",
    )
    database.scan()
    with reader(emulator, database) as connection:
        assert rows(connection, "SELECT id FROM dbo.f") == [(1,)]
        assert rows(connection, "SELECT id FROM cdc.dbo_f_CT ORDER BY id") == [(1,), (2,)]
