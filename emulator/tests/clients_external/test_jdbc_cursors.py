"""Server cursors of mssql-jdbc: scrollable results, and selectMethod=cursor."""

from __future__ import annotations

from typing import Any

import pytest

from jdbc_body import error_of, query, rows_of, run
from jdbc_jvm import Jdbc

# py4j leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

SCROLL_INSENSITIVE, SCROLL_KEYSET, SCROLL_DYNAMIC = 1004, 1005, 1006
READ_ONLY, UPDATABLE = 1007, 1008


@pytest.fixture
def numbered(connection: Any, table: str) -> str:
    """Rows 1 to 10, named n1 to n10."""
    names = ", ".join(f"(N'n{i}')" for i in range(1, 11))
    run(connection, f"INSERT INTO {table} (Name) VALUES {names}")
    return f"SELECT Id, Name FROM {table} ORDER BY Id"


@pytest.mark.parametrize("kind", [SCROLL_INSENSITIVE, SCROLL_KEYSET])
def test_a_scrollable_result_goes_forth_and_back(connection: Any, numbered: str, kind: int) -> None:
    statement = connection.createStatement(kind, READ_ONLY)
    statement.setFetchSize(3)
    result = statement.executeQuery(numbered)
    assert result.getMetaData().getColumnCount() == 2
    seen = []
    while result.next():
        seen.append(result.getString("Name"))
    assert seen == [f"n{i}" for i in range(1, 11)]
    assert result.isAfterLast()
    while result.previous():
        seen.pop()
    assert seen == []
    moves = [
        (result.first, 1),
        (result.last, 10),
        (lambda: result.absolute(7), 7),
        (lambda: result.relative(-3), 4),
        (lambda: result.relative(2), 6),
        (lambda: result.absolute(-2), 9),
        (result.next, 10),
    ]
    for move, expected in moves:
        assert move()
        assert (result.getInt("Id"), result.getString("Name")) == (expected, f"n{expected}")
    assert not result.next()
    result.beforeFirst()
    assert result.next()
    assert result.getInt(1) == 1
    assert not result.absolute(11)
    assert result.isAfterLast()
    result.close()
    assert query(connection, "SELECT 1") == [(1,)]


def test_a_dynamic_result_goes_forth_and_back(connection: Any, numbered: str) -> None:
    statement = connection.createStatement(SCROLL_DYNAMIC, READ_ONLY)
    statement.setFetchSize(4)
    result = statement.executeQuery(numbered)
    assert rows_until_the_end(result) == list(range(1, 11))
    assert result.last()
    assert result.getInt("Id") == 10
    assert result.relative(-9)
    assert result.getInt("Id") == 1
    assert not result.previous()
    assert rows_until_the_end(result) == list(range(1, 11))


def rows_until_the_end(result: Any) -> list[int]:
    seen = []
    while result.next():
        seen.append(result.getInt("Id"))
    return seen


def test_a_prepared_statement_opens_a_cursor_each_time(connection: Any, table: str, numbered: str) -> None:
    found = connection.prepareStatement(
        f"SELECT Id FROM {table} WHERE Name <> ? AND Id > ? ORDER BY Id", SCROLL_INSENSITIVE, READ_ONLY
    )
    for least in (7, 8, 9, 10):
        found.setString(1, "n9")
        found.setInt(2, least)
        result = found.executeQuery()
        expected = [i for i in range(least + 1, 11) if i != 9]
        assert result.last() is bool(expected)
        assert result.getRow() == len(expected)
        result.beforeFirst()
        assert rows_of(result) == [(i,) for i in expected]
    found.close()


def test_select_method_cursor_reads_in_pieces_and_other_statements_go_between(jdbc: Jdbc, table: str) -> None:
    connection = jdbc.connect(selectMethod="cursor")
    connection.setAutoCommit(False)
    run(connection, f"INSERT INTO {table} (Name) SELECT CONCAT(N'n', value) FROM GENERATE_SERIES(1, 1000)")
    statement = connection.createStatement()
    statement.setFetchSize(100)
    result = statement.executeQuery(f"SELECT Id, Name FROM {table} ORDER BY Id")
    count = 0
    while result.next():
        count += 1
        if count == 150:
            assert query(connection, f"SELECT COUNT(*) FROM {table}") == [(1000,)]
    assert count == 1000
    result.close()
    connection.commit()
    assert query(connection, f"SELECT Name FROM {table} WHERE Id = ?", 1000) == [("n1000",)]
    connection.close()


def test_what_is_no_single_query_runs_without_a_cursor(connection: Any, table: str) -> None:
    statement = connection.createStatement(SCROLL_INSENSITIVE, READ_ONLY)
    assert statement.execute("SELECT 1 AS a; SELECT 2 AS b")
    assert rows_of(statement.getResultSet()) == [(1,)]
    assert statement.getMoreResults()
    assert rows_of(statement.getResultSet()) == [(2,)]
    assert error_of(lambda: statement.executeQuery("SELECT * FROM dbo.Missing")).getErrorCode() == 208
    assert error_of(lambda: statement.executeQuery("SELECT 1/0 AS a")).getErrorCode() == 8134
    result = statement.executeQuery(f"SELECT * FROM {table}")
    assert not result.last()


def test_rows_are_not_changed_through_a_server_cursor(connection: Any, numbered: str) -> None:
    statement = connection.createStatement(SCROLL_KEYSET, UPDATABLE)

    def update() -> None:
        result = statement.executeQuery(numbered)
        result.first()
        result.updateString("Name", "changed")
        result.updateRow()

    assert "cannot be updated" in error_of(update).getMessage()
