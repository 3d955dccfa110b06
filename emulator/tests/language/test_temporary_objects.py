"""Objects whose name begins with # end with their session, wherever in it they were made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sql_client import SqlClient


def test_procedure_is_that_of_its_session(connect: Callable[..., SqlClient]) -> None:
    first, second = connect(), connect()
    first.run("CREATE PROC #mine @a int = 1 AS SELECT @a + 41")
    assert first.value("EXEC #MINE") == 42
    assert second.error("EXEC #mine")[0] == 2812
    second.run("CREATE PROC #mine AS SELECT N'ö🌊'")
    assert second.value("EXEC #mine") == "ö🌊"
    assert first.value("EXEC #mine 2") == 43
    first.connection.close()
    assert connect().error("EXEC #mine")[0] == 2812


def test_procedure_is_altered_found_and_dropped(client: SqlClient) -> None:
    assert client.error("ALTER PROC #p AS SELECT 1")[0] == 208
    client.run("CREATE PROC #p AS SELECT 1")
    assert client.error("CREATE PROC #p AS SELECT 2")[0] == 2714
    client.run("CREATE OR ALTER PROC #p AS SELECT 3")
    assert client.value("EXEC #p") == 3
    client.run("IF OBJECT_ID('tempdb..#p') IS NOT NULL DROP PROC #p")
    assert client.value("SELECT OBJECT_ID('tempdb..#p')") is None
    assert client.error("EXEC #p")[0] == 2812
    assert client.error("DROP PROC #p")[0] == 3701
    client.run("DROP PROC IF EXISTS #p")


def test_procedure_of_a_rolled_back_transaction_is_gone(client: SqlClient) -> None:
    client.run("BEGIN TRAN EXEC('CREATE PROC #undone AS SELECT 1') EXEC #undone ROLLBACK")
    assert client.error("EXEC #undone")[0] == 2812


@pytest.mark.parametrize(
    "making",
    [
        "EXEC('CREATE TABLE ##outer (a int)')",
        "EXEC sp_executesql N'SELECT 1 AS a INTO ##outer'",
        "EXEC('CREATE OR ALTER PROC #make AS CREATE TABLE ##outer (a int)') EXEC #make",
    ],
)
def test_table_of_all_sessions_outlives_the_scope_that_made_it(client: SqlClient, making: str) -> None:
    client.run(making)
    assert len(client.rows("SELECT a FROM ##outer")) <= 1
    # One of the session alone ends with its scope.
    client.run(making.replace("##", "#"))
    assert client.error("SELECT a FROM #outer")[0] == 208
