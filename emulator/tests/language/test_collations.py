"""Strings under the collations: what is equal, what is unique, and in which order rows come."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


def test_strings_of_the_default_collation_differ_neither_in_case_nor_in_blanks_at_the_end(client: SqlClient) -> None:
    client.run("CREATE TABLE people (id int PRIMARY KEY, name nvarchar(20), code varchar(10), tag char(6))")
    client.run("INSERT people VALUES (1, N'Anna', 'ab', 'x'), (2, N'ANNA ', 'AB', 'X'), (3, N'Ánna', 'abc', 'y')")
    assert client.rows("SELECT id FROM people WHERE name = N'anna' ORDER BY id") == [(1,), (2,)]
    assert client.rows("SELECT id FROM people WHERE tag = 'X' ORDER BY id") == [(1,), (2,)]
    assert client.rows("SELECT id FROM people WHERE name IN (N'ANNA', N'ánna') ORDER BY id") == [(1,), (2,), (3,)]
    assert client.rows("SELECT id FROM people WHERE name LIKE N'AN%' ORDER BY id") == [(1,), (2,)]
    assert client.rows("SELECT a.id, b.id FROM people a JOIN people b ON a.code = b.code AND a.id < b.id") == [(1, 2)]
    assert client.rows("SELECT CASE 'a' WHEN 'A' THEN 1 ELSE 0 END, NULLIF('b', 'B')") == [(1, None)]
    assert client.rows("SELECT COUNT(DISTINCT name), COUNT(DISTINCT tag) FROM people") == [(2, 2)]
    assert client.rows("SELECT COUNT(*) FROM people GROUP BY name ORDER BY name") == [(2,), (1,)]
    assert [n for (n,) in client.rows("SELECT DISTINCT UPPER(code) FROM people ORDER BY 1")] == ["AB", "ABC"]
    assert len(client.rows("SELECT name FROM people UNION SELECT N'anna'")) == 2
    assert client.rows("SELECT MIN(code), MAX(LOWER(code)) FROM people WHERE id > 1") == [("AB", "abc")]
    assert client.rows("SELECT id FROM people WHERE name <> ALL (SELECT N'ANNA')") == [(3,)]


@pytest.mark.parametrize("kind", ["nvarchar(10) NOT NULL PRIMARY KEY", "varchar(10) UNIQUE", "char(10) UNIQUE"])
def test_key_that_differs_in_case_only_is_a_duplicate(client: SqlClient, kind: str) -> None:
    client.run(f"DROP TABLE IF EXISTS keyed; CREATE TABLE keyed (code {kind}, n int)")
    client.run("INSERT keyed VALUES ('abc', 1)")
    assert client.error("INSERT keyed VALUES ('ABC', 2)")[0] == 2627
    client.run("UPDATE keyed SET code = 'Abc' WHERE code = 'aBC'")
    assert client.rows("SELECT RTRIM(code) FROM keyed") == [("Abc",)]
    client.run("DELETE keyed WHERE code = 'ABC'; INSERT keyed VALUES ('ABC', 2)")
    assert client.rows("SELECT RTRIM(code), n FROM keyed") == [("ABC", 2)]


@pytest.mark.parametrize(
    ("collation", "distinct"),
    [
        ("Latin1_General_CI_AS", 2),
        ("Latin1_General_CS_AS", 4),
        ("Latin1_General_CI_AI", 1),
        ("Latin1_General_CS_AI", 2),
        ("Latin1_General_BIN2", 4),
        ("Latin1_General_100_BIN", 4),
    ],
)
def test_column_is_compared_by_its_own_collation(client: SqlClient, collation: str, distinct: int) -> None:
    client.run(f"DROP TABLE IF EXISTS words; CREATE TABLE words (word nvarchar(10) COLLATE {collation})")
    client.run("INSERT words VALUES (N'e'), (N'E'), (N'é'), (N'É'), (N'e ')")
    assert client.rows("SELECT COUNT(DISTINCT word) FROM words") == [(distinct,)]
    assert len(client.rows("SELECT word FROM words GROUP BY word")) == distinct
    assert len(client.rows("SELECT DISTINCT word FROM words")) == distinct
    assert len(client.rows("SELECT word FROM words INTERSECT SELECT word FROM words")) == distinct
    assert client.rows("SELECT COUNT(*) FROM words WHERE word = N'E'") == [({1: 5, 2: 3, 4: 1}[distinct],)] or (
        collation.endswith("CS_AI")
    )
    assert client.rows(
        "SELECT collation_name FROM sys.columns WHERE object_id = OBJECT_ID('words') AND name = 'word'"
    ) == [(collation,)]


def test_order_takes_accents_before_case_and_letters_before_both(client: SqlClient) -> None:
    values = "(VALUES (N'b'), (N'E'), (N'é'), (N'a'), (N'F'), (N'eb'), (N'B')) AS v(w)"
    assert [w for (w,) in client.rows(f"SELECT w FROM {values} ORDER BY w COLLATE Latin1_General_CS_AS")] == [
        "a",
        "b",
        "B",
        "E",
        "é",
        "eb",
        "F",
    ]
    ordered = [w for (w,) in client.rows(f"SELECT w FROM {values} ORDER BY w")]
    assert [w.lower() for w in ordered] == ["a", "b", "b", "e", "é", "eb", "f"]


def test_collate_decides_a_comparison_and_two_collations_conflict(client: SqlClient) -> None:
    client.run(
        "CREATE TABLE two (a nvarchar(9) COLLATE Latin1_General_CS_AS, b nvarchar(9) COLLATE Latin1_General_BIN2)"
    )
    client.run("INSERT two VALUES (N'x', N'X')")
    number, message = client.error("SELECT 1 FROM two WHERE a = b")
    assert number == 468
    assert (
        'Cannot resolve the collation conflict between "Latin1_General_CS_AS" and "Latin1_General_BIN2" in the equal to'
        " operation." in message
    )
    assert client.error("SELECT 1 FROM two WHERE a + b = N'xX'")[0] == 468
    assert client.error("SELECT a + b FROM two")[0] == 451
    assert client.rows("SELECT 1 FROM two WHERE a = b COLLATE Latin1_General_CI_AS") == [(1,)]
    assert client.rows("SELECT 1 FROM two WHERE UPPER(a) = N'X'") == [(1,)]
    assert client.rows("SELECT 1 FROM two WHERE UPPER(a) = N'x'") == []
    assert client.error("SELECT 1 WHERE 'a' = 'b' COLLATE Nothing_CI")[0] == 448
    assert client.error("SELECT 1 WHERE 'a' = 'b' COLLATE Finnish_Swedish_CI_AS")[0] == 49999
    assert client.error("SELECT 1 COLLATE Latin1_General_BIN2")[0] == 447


def test_foreign_key_refers_to_what_its_collation_takes_for_equal(client: SqlClient) -> None:
    client.run(
        "CREATE TABLE lands (code varchar(10) PRIMARY KEY, region nvarchar(10) COLLATE Latin1_General_BIN2 UNIQUE)"
    )
    client.run("CREATE TABLE towns (id int PRIMARY KEY, land varchar(10) CONSTRAINT FK_land REFERENCES lands)")
    client.run("INSERT lands VALUES ('no', N'North'); INSERT towns VALUES (1, 'NO '), (2, NULL), (3, 'No')")
    number, message = client.error("INSERT towns VALUES (4, 'se')")
    assert (number, 'FOREIGN KEY constraint "FK_land"' in message) == (547, True)
    assert client.error("DELETE lands WHERE code = 'NO'")[0] == 547
    client.run("UPDATE lands SET code = 'NO' WHERE code = 'no'")
    assert client.error("UPDATE lands SET code = 'n'")[0] == 547
    client.run("ALTER TABLE towns ALTER COLUMN land varchar(20)")
    assert client.error("UPDATE lands SET code = 'n'")[0] == 547
    client.run("INSERT towns VALUES (5, 'nO')")
    client.run("ALTER TABLE towns DROP CONSTRAINT FK_land")
    client.run("ALTER TABLE towns ADD CONSTRAINT FK_again FOREIGN KEY (land) REFERENCES lands ON DELETE CASCADE")
    client.run("DELETE lands WHERE code = 'no'")
    assert client.rows("SELECT id FROM towns") == [(2,)]
    client.run("INSERT lands VALUES ('a', N'North')")
    client.run("CREATE TABLE parts (id int, region nvarchar(10) COLLATE Latin1_General_BIN2 REFERENCES lands (region))")
    client.run("INSERT parts VALUES (1, N'North ')")
    assert client.error("INSERT parts VALUES (2, N'NORTH')")[0] == 547
    client.run("CREATE TABLE bad (region nvarchar(10))")
    assert client.error("ALTER TABLE bad ADD FOREIGN KEY (region) REFERENCES lands (region)")[0] == 1757


def test_functions_that_find_strings_follow_the_collation(client: SqlClient) -> None:
    assert client.rows("SELECT CHARINDEX('B', 'abc'), PATINDEX('%B[C-D]%', 'abc'), CHARINDEX(N'É', N'caéf', 2)") == [
        (2, 2, 3)
    ]
    assert client.rows("SELECT REPLACE('Abab', 'AB', 'x'), REPLACE(N'élan É', N'é', N'e'), TRIM('X' FROM 'xaX')") == [
        ("xx", "elan e", "a")
    ]
    assert client.rows("SELECT TRANSLATE('Abc', 'aB', '12')") == [("12c",)]
    exact = "COLLATE Latin1_General_BIN2"
    assert client.rows(
        f"SELECT CHARINDEX('B' {exact}, 'abc'), REPLACE('Abab' {exact}, 'AB', 'x'),"
        f" TRANSLATE('Abc' {exact}, 'aB', '12')"
    ) == [(0, "Abab", "Abc")]
    assert client.rows("SELECT REPLACE(N'Café' COLLATE Latin1_General_CI_AI, 'FE', 'x')") == [("Cax",)]
    assert client.error("SELECT CHARINDEX('x', N'ﬁx')")[0] == 49999


def test_catalog_and_properties_agree_on_the_collation(client: SqlClient) -> None:
    default = "SQL_Latin1_General_CP1_CI_AS"
    client.run("CREATE TABLE described (a varchar(9), b varchar(9) COLLATE Latin1_General_100_BIN2, c int)")
    assert client.rows(
        "SELECT name, collation_name FROM sys.columns WHERE object_id = OBJECT_ID('described') ORDER BY column_id"
    ) == [("a", default), ("b", "Latin1_General_100_BIN2"), ("c", None)]
    assert client.rows("SELECT COLLATION_NAME FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'DESCRIBED'") == [
        (default,),
        ("Latin1_General_100_BIN2",),
        (None,),
    ]
    assert client.rows(
        "SELECT collation_name, CAST(SERVERPROPERTY('Collation') AS sysname),"
        " CAST(DATABASEPROPERTYEX(DB_NAME(), 'Collation') AS sysname)"
        " FROM sys.databases WHERE database_id = DB_ID()"
    ) == [(default, default, default)]
    assert client.rows(
        f"SELECT CAST(COLLATIONPROPERTY('{default}', 'ComparisonStyle') AS int),"
        f" CAST(COLLATIONPROPERTY('{default}', 'Version') AS int),"
        " CAST(COLLATIONPROPERTY('latin1_general_100_bin2', 'Version') AS int), COLLATIONPROPERTY('no', 'LCID')"
    ) == [(196609, 0, 2, None)]
    names = [name for (name,) in client.rows("SELECT name FROM fn_helpcollations() ORDER BY name")]
    assert default in names
    assert "Latin1_General_100_BIN2" in names
    assert client.rows("SELECT description FROM sys.fn_helpcollations() WHERE name = 'Latin1_General_CS_AI'") == [
        ("Latin1-General, case-sensitive, accent-insensitive, kanatype-insensitive, width-insensitive",)
    ]


def test_database_has_the_collation_that_it_was_made_with(client: SqlClient) -> None:
    client.run("CREATE DATABASE Exact COLLATE Latin1_General_BIN2")
    client.run("CREATE TABLE Exact.dbo.t (a varchar(9) PRIMARY KEY, b varchar(9) COLLATE DATABASE_DEFAULT)")
    client.run("INSERT Exact.dbo.t VALUES ('a', 'b'), ('A', 'B')")
    client.run("USE Exact")
    assert client.rows("SELECT a FROM t WHERE b = 'B'") == [("A",)]
    assert client.rows("SELECT 1 WHERE 'a' = 'A'") == []
    client.run("CREATE TABLE #t (a varchar(9))")
    assert client.error("SELECT 1 FROM t JOIN #t x ON x.a = t.a")[0] == 468
    client.run("DECLARE @t TABLE (a varchar(9)); SELECT 1 FROM t JOIN @t x ON x.a = t.a")
    client.run("USE master; DROP DATABASE Exact")
    assert client.error("CREATE DATABASE Kyoto COLLATE Japanese_CI_AS")[0] == 49999
    assert client.error("CREATE TABLE no (a int COLLATE Latin1_General_BIN2)")[0] == 447


def test_column_that_is_indexed_keeps_its_collation(client: SqlClient) -> None:
    client.run("CREATE TABLE turned (a varchar(9) COLLATE Latin1_General_BIN2, b varchar(9) CONSTRAINT UQ_b UNIQUE)")
    client.run("INSERT turned VALUES ('x', 'y')")
    client.run("ALTER TABLE turned ALTER COLUMN a varchar(9)")
    assert client.rows("SELECT 1 FROM turned WHERE a = 'X'") == [(1,)]
    assert client.error("ALTER TABLE turned ALTER COLUMN b varchar(9) COLLATE Latin1_General_BIN2")[0] == 5074
    client.run("CREATE INDEX IX_a ON turned (a)")
    assert client.error("ALTER TABLE turned ALTER COLUMN a varchar(9) COLLATE Latin1_General_CS_AS")[0] == 5074
    client.run("ALTER TABLE turned ALTER COLUMN b varchar(20)")
    assert client.error("INSERT turned VALUES ('z', 'Y')")[0] == 2627


def test_collation_of_a_result_is_kept_where_it_has_literals(client: SqlClient) -> None:
    client.run("SELECT CAST('a' AS varchar(5)) COLLATE Latin1_General_BIN2 AS x INTO of_literals")
    shown = "SELECT collation_name FROM sys.columns WHERE object_id = OBJECT_ID('of_literals')"
    assert client.rows(shown) == [("Latin1_General_BIN2",)]
