"""Cursors of a batch or a procedure: loops over rows, scrolling, scope, errors."""

from __future__ import annotations

import pytest

from emulator_process import Emulator
from sql_client import SqlClient


@pytest.fixture(scope="module", autouse=True)
def schema(database: str, emulator: Emulator) -> None:
    connection = emulator.connect_pymssql(database, autocommit=True)
    SqlClient(connection).script(
        """
        CREATE TABLE dbo.Names (id int PRIMARY KEY, name nvarchar(20))
        INSERT INTO dbo.Names VALUES (1, N'one'), (2, N'two'), (3, NULL)
        GO
        CREATE PROCEDURE dbo.Joined @least int, @out nvarchar(100) OUTPUT AS
        DECLARE @id int, @name nvarchar(20)
        DECLARE rows_ CURSOR LOCAL FAST_FORWARD FOR SELECT id, name FROM dbo.Names WHERE id >= @least ORDER BY id
        SET @least = 99
        OPEN rows_
        FETCH NEXT FROM rows_ INTO @id, @name
        WHILE @@FETCH_STATUS = 0
        BEGIN
            SET @out = CONCAT(@out, @id, '=', @name, ';')
            FETCH NEXT FROM rows_ INTO @id, @name
        END
        CLOSE rows_
        DEALLOCATE rows_
        """
    )
    connection.close()


def test_a_loop_over_a_cursor_sees_every_row(client: SqlClient) -> None:
    batch = "DECLARE @o nvarchar(100) = ''; EXEC dbo.Joined 2, @o OUTPUT; SELECT @o, @@FETCH_STATUS"
    assert client.rows(batch) == [("2=two;3=;", -1)]


def test_a_scroll_cursor_goes_everywhere(client: SqlClient) -> None:
    results = client.run(
        """
        DECLARE c SCROLL CURSOR FOR SELECT id FROM dbo.Names ORDER BY id FOR READ ONLY
        OPEN c
        SELECT @@CURSOR_ROWS
        FETCH LAST FROM c
        FETCH PRIOR FROM c
        FETCH ABSOLUTE -3 FROM c
        FETCH RELATIVE 2 FROM c
        FETCH NEXT FROM c
        CLOSE c
        DEALLOCATE c
        """
    )
    assert results == [[(3,)], [(3,)], [(2,)], [(1,)], [(3,)], []]


def test_a_cursor_variable_holds_a_cursor(client: SqlClient) -> None:
    batch = """
        DECLARE @c CURSOR, @n int, @sum int = 0
        SET @c = CURSOR FOR WITH x AS (SELECT id FROM dbo.Names) SELECT id FROM x
        OPEN @c
        FETCH NEXT FROM @c INTO @n
        WHILE @@FETCH_STATUS = 0 BEGIN SET @sum += @n; FETCH NEXT FROM @c INTO @n END
        CLOSE @c; DEALLOCATE @c
        SELECT @sum
    """
    assert client.value(batch) == 6


def test_a_global_cursor_outlives_its_batch_and_changes_under_it_are_not_seen(client: SqlClient) -> None:
    client.run("DECLARE g CURSOR GLOBAL FOR SELECT id FROM dbo.Names; OPEN g")
    client.run("INSERT INTO dbo.Names VALUES (4, N'late')")
    fetched = [client.run("FETCH NEXT FROM g")[0] for _ in range(4)]
    client.run("DEALLOCATE g; DELETE FROM dbo.Names WHERE id = 4")
    assert fetched[3] == []


@pytest.mark.parametrize(
    ("batch", "number"),
    [
        ("OPEN never", 16916),
        ("DECLARE e1 CURSOR LOCAL FOR SELECT 1; FETCH NEXT FROM e1", 16917),
        ("DECLARE e2 CURSOR LOCAL FOR SELECT 1; OPEN e2; OPEN e2", 16905),
        ("DECLARE e3 CURSOR LOCAL FOR SELECT 1; DECLARE e3 CURSOR LOCAL FOR SELECT 1", 16915),
        ("DECLARE e4 CURSOR LOCAL FOR SELECT 1 AS a; OPEN e4; FETCH FIRST FROM e4", 16911),
        (
            "DECLARE @a int, @b int; DECLARE e5 CURSOR LOCAL FOR SELECT 1; OPEN e5; FETCH NEXT FROM e5 INTO @a, @b",
            16924,
        ),
        ("DECLARE @c CURSOR; OPEN @c", 16950),
        ("UPDATE dbo.Names SET name = N'x' WHERE CURRENT OF c", 49999),
    ],
)
def test_a_mistaken_use_of_a_cursor_is_an_error_by_number(client: SqlClient, batch: str, number: int) -> None:
    assert client.error(batch)[0] == number
