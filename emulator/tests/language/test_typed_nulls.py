"""Columns of VALUES that have NULL in each row: the type is that of what they are assigned to, and int elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sql_client import SqlClient


@pytest.fixture
def typed(client: SqlClient) -> Iterator[SqlClient]:
    client.run("DROP TABLE IF EXISTS typed")
    client.run("""CREATE TABLE typed (id int IDENTITY PRIMARY KEY, d datetime2, g uniqueidentifier, b varbinary(3),
        s varchar(3), n int, f float, x xml, m money, o datetimeoffset)""")
    yield client


@pytest.mark.parametrize("column", ["d", "g", "b", "s", "n", "f", "x", "m", "o"])
def test_null_of_values_goes_into_every_column(typed: SqlClient, column: str) -> None:
    typed.run(f"INSERT typed ({column}) SELECT a FROM (VALUES (NULL), (NULL)) v(a)")
    typed.run(
        f"INSERT typed (n, {column if column != 'n' else 'f'}) SELECT k, a FROM (VALUES (1, NULL)) v(k, a) ORDER BY k"
    )
    typed.run(f"UPDATE typed SET {column} = a FROM (VALUES (NULL)) v(a)")
    assert typed.rows(f"SELECT COUNT(*), COUNT({column}) FROM typed") == [(3, 0)]


PATHS = {
    "derived": "INSERT typed ({column}) SELECT a FROM (SELECT a FROM (VALUES (NULL)) v(a)) x",
    "nested": "INSERT typed ({column}) SELECT z FROM (SELECT * FROM (SELECT a AS z FROM (VALUES (NULL)) v(a)) x) y",
    "cte": "WITH c(a) AS (SELECT * FROM (VALUES (NULL)) v(a)) INSERT typed ({column}) SELECT a FROM c",
    "ctes": "WITH c AS (SELECT a FROM (VALUES (NULL)) v(a)), e AS (SELECT DISTINCT TOP 1 a FROM c ORDER BY a) "
    "INSERT typed ({column}) SELECT e.a FROM e LEFT JOIN c ON 1 = 0",
    "union": "INSERT typed ({column}) SELECT a FROM (SELECT a FROM (VALUES (NULL)) v(a) UNION "
    "SELECT b FROM (VALUES (NULL), (NULL)) w(b)) x",
    "apply": "INSERT typed ({column}) SELECT x.a FROM (VALUES (NULL)) v(a) CROSS APPLY (SELECT v.a) x",
}


@pytest.mark.parametrize("path", PATHS)
def test_null_of_values_goes_through_derived_tables(typed: SqlClient, path: str) -> None:
    for column in ("d", "g", "b", "s", "n", "f", "x", "m", "o"):
        typed.run(PATHS[path].format(column=column))
        typed.run(f"UPDATE typed SET {column} = a FROM (SELECT a FROM (VALUES (NULL)) v(a)) x")
    assert typed.rows("SELECT COUNT(*), COUNT(d), COUNT(g), COUNT(b), COUNT(x) FROM typed") == [(9, 0, 0, 0, 0)]


def test_null_of_values_is_merged_through_a_derived_table(typed: SqlClient) -> None:
    typed.run("""WITH s AS (SELECT * FROM (VALUES ('x', NULL)) v(s, a)) MERGE typed USING s ON typed.s = s.s
        WHEN NOT MATCHED THEN INSERT (s, d, g) VALUES (s.s, s.a, s.a);""")
    assert typed.rows("SELECT s, d, g FROM typed") == [("x", None, None)]


def test_what_is_added_to_nulls_of_values_is_kept(typed: SqlClient) -> None:
    recursive = "WITH c AS (SELECT a, 1 AS k FROM (VALUES (NULL)) v(a) UNION ALL SELECT k, k + 1 FROM c WHERE k < 3) "
    typed.run(f"{recursive} INSERT typed (n) SELECT a FROM c")
    union = "SELECT a FROM (VALUES (NULL)) v(a) UNION ALL SELECT 7"
    typed.run(f"INSERT typed (n) SELECT a FROM ({union}) x")
    typed.run("INSERT typed (n) SELECT ISNULL(a, 8) FROM (SELECT a FROM (VALUES (NULL)) v(a)) x")
    assert typed.rows("SELECT n FROM typed WHERE n IS NOT NULL ORDER BY n") == [(1,), (2,), (7,), (8,)]


def test_null_of_values_is_merged_into_every_column(typed: SqlClient) -> None:
    merge = """MERGE typed USING (VALUES (@0, NULL)) AS s(s, a) ON typed.s = s.s
        WHEN MATCHED THEN UPDATE SET d = s.a, g = s.a, n = n + 1
        WHEN NOT MATCHED THEN INSERT (s, d, g, b, n) VALUES (s.s, s.a, s.a, s.a, 1);"""
    for _ in range(2):
        typed.run(f"DECLARE @0 nvarchar(9) = N'x'; {merge}")
    typed.run("EXEC sp_executesql N'" + merge.replace("'", "''") + "', N'@0 nvarchar(9)', @0 = N'y'")
    assert typed.rows("SELECT s, d, g, b, n FROM typed ORDER BY s") == [
        ("x", None, None, None, 2),
        ("y", None, None, None, 1),
    ]


def test_null_of_values_meets_every_type(typed: SqlClient) -> None:
    typed.run("INSERT typed (g) VALUES (NEWID()), (NULL)")
    assert typed.rows("SELECT id FROM typed JOIN (VALUES (NULL)) v(a) ON g = a") == []
    assert typed.rows(
        "SELECT COUNT(*) FROM (SELECT a FROM (VALUES (NULL)) v(a) UNION ALL SELECT g FROM typed) AS u"
    ) == [(3,)]
    assert typed.rows(
        "SELECT CAST(a AS datetime2), CAST(a AS uniqueidentifier), COALESCE(a, 'x') FROM (VALUES (NULL)) v(a)"
    ) == [(None, None, "x")]


def test_null_of_values_is_int_where_nothing_assigns_it(client: SqlClient) -> None:
    described = client.rows(
        "SELECT system_type_name FROM sys.dm_exec_describe_first_result_set("
        "N'SELECT a, SUM(a) OVER () AS s, MAX(a) OVER () AS m FROM (VALUES (NULL)) v(a)', NULL, 0)"
    )
    assert described == [("int",)] * 3
    described = client.rows(
        "SELECT system_type_name FROM sys.dm_exec_describe_first_result_set("
        "N'WITH c AS (SELECT a FROM (VALUES (NULL)) v(a)) SELECT a, MAX(a) OVER () AS m FROM c', NULL, 0)"
    )
    assert described == [("int",)] * 2
    client.run(
        "DROP TABLE IF EXISTS made_of_nulls; WITH c AS (SELECT a FROM (VALUES (NULL)) v(a)) "
        "SELECT a INTO made_of_nulls FROM c"
    )
    assert (
        client.value("SELECT TYPE_NAME(user_type_id) FROM sys.columns WHERE object_id = OBJECT_ID('made_of_nulls')")
        == "int"
    )
    grouped = "SELECT a, COUNT(*), COUNT(a), MIN(a), AVG(a) FROM (VALUES (NULL), (NULL)) v(a) GROUP BY a ORDER BY a"
    assert client.rows(grouped) == [(None, 2, 0, None, None)]


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("SELECT a FROM (VALUES (NULL), (1)) v(a)", 206),
        ("SELECT a FROM (VALUES (1)) v(a)", 206),
        ("SELECT a FROM (SELECT NULL AS a) v", 206),
        ("SELECT a FROM (SELECT a + 1 AS a FROM (VALUES (NULL)) v(a)) x", 206),
        ("SELECT MAX(a) FROM (SELECT a FROM (VALUES (NULL)) v(a)) x", 206),
        ("SELECT a FROM (SELECT a FROM (VALUES (NULL)) v(a) UNION SELECT NULL) x", 206),
    ],
)
def test_int_is_no_datetime2(typed: SqlClient, query: str, number: int) -> None:
    assert typed.error(f"INSERT typed (d) {query}")[0] == number
