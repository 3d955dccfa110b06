"""sys.dm_exec_describe_first_result_set: the columns that a batch would give, as rows of a query."""

from __future__ import annotations

import pytest

from sql_client import SqlClient

FUNCTION = "sys.dm_exec_describe_first_result_set"


@pytest.fixture
def client(client: SqlClient) -> SqlClient:
    client.run("DROP TABLE IF EXISTS dbo.source; CREATE TABLE dbo.source (id int IDENTITY PRIMARY KEY, n nvarchar(20))")
    return client


def test_columns_of_a_query_are_rows(client: SqlClient) -> None:
    query = f"SELECT name, system_type_name, is_nullable, is_identity_column, error_number FROM {FUNCTION}"
    rows = client.rows(f"{query}(N'SELECT id, n, id * 2 AS twice FROM dbo.source', NULL, 0) ORDER BY column_ordinal")
    assert [row[:2] for row in rows] == [("id", "int"), ("n", "nvarchar(20)"), ("twice", "int")]
    assert [tuple(map(bool, row[2:4])) for row in rows[:2]] == [(False, True), (True, False)]
    assert {row[4] for row in rows} == {None}


def test_function_is_joined_filtered_and_given_variables(client: SqlClient) -> None:
    rows = client.rows(
        "DECLARE @text nvarchar(max) = N'SELECT n, @p AS p FROM dbo.source WHERE id = @p';"
        f" SELECT d.name, d.max_length FROM (VALUES ('n'), ('q')) w (name)"
        f" JOIN {FUNCTION}(@text, N'@p int', 0) AS d ON d.name = w.name"
    )
    assert rows == [("n", 40)]
    assert client.rows(f"SELECT COUNT(*) FROM {FUNCTION}(N'UPDATE dbo.source SET n = N''a''', NULL, 0)") == [(0,)]
    assert client.value("SELECT COUNT(*) FROM dbo.source") == 0


@pytest.mark.parametrize(
    ("text", "number", "kind"),
    [
        ("SELECT 1 +", 102, "SYNTAX"),
        ("SELECT * FROM dbo.nothing", 208, "OBJECT_DOES_NOT_EXIST"),
        ("EXEC (N''SELECT 1'')", 11513, "DYNAMIC_SQL"),
    ],
)
def test_what_cannot_be_described_is_a_row_with_the_error(client: SqlClient, text: str, number: int, kind: str) -> None:
    rows = client.rows(f"SELECT name, error_number, error_type_desc FROM {FUNCTION}(N'{text}', NULL, 0)")
    assert rows == [(None, number, kind)]


def test_text_of_a_column_is_refused_and_missing_arguments_are_an_error(client: SqlClient) -> None:
    number, message = client.error(f"SELECT d.name FROM dbo.source s CROSS APPLY {FUNCTION}(s.n, NULL, 0) d")
    assert (number, "of a column" in message) == (49999, True)
    assert client.error(f"SELECT * FROM {FUNCTION}(N'SELECT 1')")[0] == 313
