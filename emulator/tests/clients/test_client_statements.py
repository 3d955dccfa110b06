"""Statements under every client: rows, counts, several results, errors in the server's words."""

from __future__ import annotations

from typing import Any

import pytest

from client_body import DATABASE, rows_of, run
from drivers import Driver


def test_rows_are_found_by_parameters(connection: Any, driver: Driver, table: str) -> None:
    cursor = connection.cursor()
    cursor.executemany(f"INSERT INTO {table} (Name) VALUES ({driver.mark})", [("a",), ("é",), ("日本",)])
    assert rows_of(connection, f"SELECT Name FROM {table} WHERE Name = {driver.mark}", "日本") == [("日本",)]
    for name in ("a", "é", "b"):
        found = rows_of(connection, f"SELECT COUNT(*) FROM {table} WHERE Name = {driver.mark} OR Id = 0", name)
        assert found == [(int(name != "b"),)]


def test_row_counts_and_identity_are_reported(connection: Any, table: str) -> None:
    cursor = run(connection, f"INSERT INTO {table} (Name) VALUES (N'a'), (N'b'), (N'c')")
    assert cursor.rowcount == 3
    assert rows_of(connection, "SELECT @@ROWCOUNT, CAST(SCOPE_IDENTITY() AS int)") == [(3, 3)]
    cursor = run(connection, f"UPDATE {table} SET Name = Name + N'x' WHERE Id < 3")
    assert cursor.rowcount == 2
    cursor = run(connection, f"DELETE FROM {table}")
    assert cursor.rowcount == 3


def test_several_results_come_one_after_the_other(connection: Any, table: str) -> None:
    cursor = run(
        connection,
        f"SELECT 1 AS a; INSERT INTO {table} (Name) VALUES (N'x'); SELECT N'zwei' AS b, 2 AS c; PRINT 'done'",
    )
    results = []
    while True:
        # python-tds still describes the last result when a statement without one has run.
        if cursor.description and (rows := [tuple(row) for row in cursor.fetchall()]):
            results.append(([column[0] for column in cursor.description], rows))
        if not cursor.nextset():
            break
    assert results == [(["a"], [(1,)]), (["b", "c"], [("zwei", 2)])]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM dbo.Missing", "Invalid object name 'dbo.Missing'"),
        ("SELECT Missing FROM dbo.Things", "Invalid column name 'Missing'"),
        ("SELEC 1", "Incorrect syntax near|Could not find stored procedure"),
        ("SELECT 1/0", "Divide by zero error encountered"),
        ("INSERT INTO dbo.Things (Name) VALUES (NULL)", "Cannot insert the value NULL into column 'Name'"),
        ("INSERT INTO dbo.Things (Name) VALUES (N'a'), (N'a')", "Violation of UNIQUE KEY constraint 'UQ_Name'"),
        ("RAISERROR('my own words', 16, 1)", "my own words"),
        ("THROW 51000, 'thrown', 1", "thrown"),
        ("EXEC dbo.NoSuchProcedure", "Could not find stored procedure 'dbo.NoSuchProcedure'"),
    ],
)
def test_an_error_is_raised_in_the_servers_words(connection: Any, table: str, statement: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        run(connection, statement).fetchall()
    assert rows_of(connection, "SELECT 1") == [(1,)]


def test_a_large_result_may_be_left_unread(connection: Any, table: str) -> None:
    cursor = connection.cursor()
    many = "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT i, N'{}' AS t FROM n"
    cursor = run(connection, many.format("x" * 30) + " OPTION (MAXRECURSION 0)")
    assert tuple(cursor.fetchone()) == (1, "x" * 30)
    cursor.close()
    assert rows_of(connection, "SELECT 2") == [(2,)]
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'after')")
    connection.commit()


def test_another_database_can_be_used(connection: Any) -> None:
    run(connection, "USE master")
    assert rows_of(connection, "SELECT DB_NAME()") == [("master",)]
    run(connection, f"USE {DATABASE}")
    assert rows_of(connection, "SELECT DB_NAME()") == [(DATABASE,)]
