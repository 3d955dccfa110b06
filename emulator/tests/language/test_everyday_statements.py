"""Forms of statements that scripts and tools write every day."""

from __future__ import annotations

import uuid

import pytest

from sql_client import SqlClient


@pytest.fixture
def tables(client: SqlClient) -> SqlClient:
    client.script("""
        DROP TABLE IF EXISTS targets, sources, others
        CREATE TABLE targets (id int PRIMARY KEY, q int)
        CREATE TABLE sources (id int, q int)
        CREATE TABLE others (id int, only_here int)
        INSERT targets VALUES (1, 10)
        INSERT sources VALUES (1, 11), (2, 22)
        INSERT others VALUES (1, 7)""")
    return client


def test_merge_actions_see_the_row_that_there_is(tables: SqlClient) -> None:
    done = tables.rows("""
        MERGE targets AS t USING sources AS s ON t.id = s.id
        WHEN MATCHED AND t.q < s.q THEN UPDATE SET q = s.q
        WHEN NOT MATCHED AND q > 0 THEN INSERT (id, q) VALUES (id, q)
        WHEN NOT MATCHED BY SOURCE AND q > 100 THEN DELETE
        OUTPUT $action, inserted.id;""")
    assert sorted(done) == [("INSERT", 2), ("UPDATE", 1)]
    assert tables.rows("SELECT * FROM targets ORDER BY id") == [(1, 11), (2, 22)]


def test_target_of_an_update_may_have_an_alias_in_from(tables: SqlClient) -> None:
    tables.run("UPDATE targets SET q = x.q + s.q FROM targets AS x JOIN sources s ON s.id = x.id")
    assert tables.rows("SELECT * FROM targets") == [(1, 21)]
    tables.run("UPDATE targets SET q = 5 FROM targets AS x LEFT JOIN others o ON o.id = x.id")
    assert tables.rows("SELECT * FROM targets") == [(1, 5)]
    assert tables.error("UPDATE targets SET q = 1 FROM targets a JOIN targets b ON a.id = b.id")[0] == 8154
    tables.run("DELETE targets FROM targets AS x WHERE x.id = 1")
    assert tables.rows("SELECT * FROM targets") == []


def test_joins_in_parentheses_count_their_tables_once(tables: SqlClient) -> None:
    query = "SELECT only_here FROM ((targets t JOIN sources s ON t.id = s.id) JOIN others o ON o.id = t.id)"
    assert tables.rows(query) == [(7,)]


def test_insert_takes_hints_and_top(tables: SqlClient) -> None:
    tables.run("INSERT INTO others WITH (TABLOCK) SELECT 2, 2")
    tables.run("INSERT INTO dbo.others WITH (TABLOCK, HOLDLOCK) (id, only_here) VALUES (3, 3)")
    tables.run("INSERT TOP (1) INTO others (id) SELECT id FROM sources")
    tables.run("INSERT TOP (1) others VALUES (8, 8), (9, 9)")
    assert tables.value("SELECT COUNT(*) FROM others") == 5


def test_pivot_takes_every_aggregate(tables: SqlClient) -> None:
    tables.run("INSERT sources VALUES (1, 14)")
    for aggregate, expected in (("AVG", 12), ("SUM", 25), ("MAX", 14), ("COUNT", 2)):
        query = f"SELECT [1], [2] FROM sources PIVOT ({aggregate}(q) FOR id IN ([1], [2])) p"
        assert tables.rows(query) == [(expected, 22 if aggregate != "COUNT" else 1)]


def test_default_is_added_without_a_name(tables: SqlClient) -> None:
    tables.run("ALTER TABLE others ADD DEFAULT 5 FOR only_here; INSERT others (id) VALUES (4)")
    assert tables.rows("SELECT only_here FROM others WHERE id = 4") == [(5,)]


def test_foreign_key_of_a_column_may_name_it(tables: SqlClient) -> None:
    tables.run("DROP TABLE IF EXISTS referring; CREATE TABLE referring (b int FOREIGN KEY (b) REFERENCES targets (id))")
    assert tables.error("INSERT referring VALUES (5)")[0] == 547
    tables.run("DROP TABLE referring")


def test_column_is_renamed_without_a_type(tables: SqlClient) -> None:
    tables.run("EXEC sp_rename 'others.only_here', 'renamed'; EXEC sp_rename 'dbo.others.renamed', 'again'")
    assert tables.rows("SELECT again FROM others") == [(7,)]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("t.WRITE('XX', 1, 2)", "aXXdef"),
        ("t.WRITE('end', NULL, NULL)", "abcdefend"),
        ("t.WRITE(NULL, 3, 0)", "abc"),
        ("t.WRITE('q', 1, NULL)", "aq"),
        ("b.WRITE(0xFF, 0, 1), t.WRITE('', 0, 1)", "bcdef"),
    ],
)
def test_write_replaces_a_part_of_a_large_value(client: SqlClient, call: str, expected: str) -> None:
    client.run("CREATE TABLE #large (t varchar(max), b varbinary(max)); INSERT #large VALUES ('abcdef', 0x010203)")
    client.run(f"UPDATE #large SET {call}")
    assert client.value("SELECT t FROM #large") == expected


@pytest.mark.parametrize(("call", "number"), [("t.WRITE('q', 100, 1)", 7116), ("i.WRITE('q', 0, 1)", 8137)])
def test_write_beyond_the_value_or_to_another_type_is_refused(client: SqlClient, call: str, number: int) -> None:
    client.run("CREATE TABLE #large (t varchar(max), i int); INSERT #large VALUES ('abcdef', 1)")
    assert client.error(f"UPDATE #large SET {call}")[0] == number


def test_constraints_are_enabled_again_without_checking_rows(tables: SqlClient) -> None:
    states = "SELECT is_disabled, is_not_trusted FROM sys.foreign_keys WHERE name = 'to_target'"
    tables.run("DROP TABLE IF EXISTS loaded")
    tables.run("CREATE TABLE loaded (id int, CONSTRAINT to_target FOREIGN KEY (id) REFERENCES targets (id))")
    tables.run("ALTER TABLE loaded NOCHECK CONSTRAINT ALL; INSERT loaded VALUES (99)")
    tables.run("ALTER TABLE loaded CHECK CONSTRAINT ALL")
    assert tables.rows(states) == [(False, True)]
    assert tables.error("INSERT loaded VALUES (98)")[0] == 547
    assert tables.error("ALTER TABLE loaded WITH CHECK CHECK CONSTRAINT ALL")[0] == 547
    tables.run("DELETE loaded; ALTER TABLE loaded WITH CHECK CHECK CONSTRAINT ALL")
    assert tables.rows(states) == [(False, False)]
    tables.run("DROP TABLE loaded")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE",
        "ALTER DATABASE CURRENT SET MULTI_USER WITH ROLLBACK AFTER 10 SECONDS",
        "SELECT * FROM targets OPTION (USE HINT ('FORCE_LEGACY_CARDINALITY_ESTIMATION'), MAXDOP 1)",
        "SELECT * FROM targets AS t WITH (INDEX = 1) JOIN others WITH (NOLOCK, INDEX(0)) ON others.id = t.id",
        "CREATE INDEX old_style ON others (id) WITH FILLFACTOR = 80, PAD_INDEX ON [PRIMARY]",
        "WAITFOR DELAY '0:0:0'",
        "SELECT CAST('0:0:5' AS time), CAST('2007-05-08 12:35:29. 1234567 +12:15' AS datetimeoffset)",
    ],
)
def test_form_is_taken(tables: SqlClient, statement: str) -> None:
    tables.run(statement)


def test_fetch_takes_an_expression(tables: SqlClient) -> None:
    rows = "OFFSET @a ROWS FETCH NEXT @b - @a + 1 ROWS ONLY"
    query = f"DECLARE @a int = 1, @b int = 1 SELECT id FROM sources ORDER BY id {rows}"
    assert tables.rows(query) == [(2,)]


def test_maxrecursion_is_kept_among_other_hints(client: SqlClient) -> None:
    query = "WITH c AS (SELECT 1 n UNION ALL SELECT n + 1 FROM c WHERE n < 10) SELECT COUNT(*) FROM c"
    assert client.error(f"{query} OPTION (RECOMPILE, MAXRECURSION 5)")[0] == 530


def test_function_may_name_what_is_made_later(client: SqlClient) -> None:
    client.script("""
        CREATE FUNCTION calls_later(@a int) RETURNS int AS BEGIN RETURN dbo.later(@a) END
        GO
        CREATE FUNCTION counts_later() RETURNS int AS BEGIN RETURN (SELECT COUNT(*) FROM later_table) END""")
    assert client.error("SELECT dbo.calls_later(3)")[0] == 4121
    assert client.error("SELECT dbo.counts_later()")[0] == 208
    client.script("""
        CREATE FUNCTION later(@a int) RETURNS int AS BEGIN RETURN @a * 2 END
        GO
        CREATE TABLE later_table (a int)
        INSERT later_table VALUES (1), (2)""")
    assert client.rows("SELECT dbo.calls_later(3), dbo.counts_later()") == [(6, 2)]


def test_inline_function_need_not_use_its_parameters(tables: SqlClient) -> None:
    tables.script(
        "CREATE FUNCTION unused(@a int, @b int) RETURNS TABLE AS RETURN (SELECT id FROM sources WHERE id > @b)"
    )
    assert tables.rows("SELECT * FROM unused(5, 1)") == [(2,)]


def test_procedure_may_be_empty(client: SqlClient) -> None:
    client.script("CREATE PROCEDURE nothing AS\nGO\nALTER PROCEDURE nothing AS SELECT 1")
    assert client.rows("EXEC nothing") == [(1,)]


def test_identity_and_rowguid_are_found_by_what_they_are(client: SqlClient) -> None:
    client.run("CREATE TABLE marked (i int IDENTITY, g uniqueidentifier ROWGUIDCOL, v int)")
    client.run("INSERT marked (g, v) VALUES ('00000000-0000-0000-0000-000000000001', 3)")
    query = "SELECT $IDENTITY, t.$ROWGUID FROM marked t WHERE $IDENTITY = 1 ORDER BY $IDENTITY"
    assert client.rows(query) == [(1, uuid.UUID(int=1))]
    assert client.value("SELECT $-1.5") == pytest.approx(-1.5)


def test_comparison_with_null_may_hold_literals(client: SqlClient) -> None:
    client.run("CREATE TABLE #texts (a varchar(20)); INSERT #texts VALUES ('x')")
    condition = "a + 'y' = NULL OR NULL <> LEFT(a, 1) OR LOWER('Q') IN (NULL) OR NULL > a + 'z'"
    assert client.rows(f"SELECT 'found' FROM #texts WHERE {condition} OR a = 'x'") == [("found",)]
    assert client.rows(f"SELECT 'found' FROM #texts WHERE {condition}") == []
    case = "CASE a + 'y' WHEN NULL THEN 'null' WHEN 'xy' THEN 'other' END"
    assert client.rows(f"SELECT 'first', {case}, '$1', [a] AS \"$2\" FROM #texts") == [("first", "other", "$1", "x")]
    assert client.rows("DECLARE @v varchar(9) = 'a' SELECT 1 WHERE @v + 'b' = NULL OR @v = 'a'") == [(1,)]


def test_output_of_default_values(client: SqlClient) -> None:
    client.run("CREATE TABLE #defaults (id int IDENTITY, b int DEFAULT 4); CREATE TABLE #seen (i int)")
    assert client.rows("INSERT #defaults OUTPUT inserted.id, inserted.b DEFAULT VALUES") == [(1, 4)]
    client.run("INSERT INTO #defaults OUTPUT inserted.id INTO #seen DEFAULT VALUES")
    assert client.rows("SELECT i FROM #seen") == [(2,)]


def test_quotient_of_small_decimals_is_exact(client: SqlClient) -> None:
    quotient = "CAST('0.00000000004' AS numeric(38, 20)) / CAST('0.00000000001' AS numeric(38, 20))"
    assert str(client.value(f"SELECT {quotient}")) == "4.000000"


def test_bits_are_shifted_by_operators(client: SqlClient) -> None:
    assert client.rows("SELECT 5 << 2, 20 >> 2, -1 >> 31, 1 << -1, 1 << 40") == [(20, 5, 1, 0, 0)]


@pytest.mark.parametrize("operator", ["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
def test_order_by_belongs_to_the_whole_of_a_set_operation(tables: SqlClient, operator: str) -> None:
    assert tables.error(f"SELECT TOP 1 id FROM sources ORDER BY id {operator} SELECT 3")[0] == 156
    ordered = "(SELECT TOP 1 id FROM sources ORDER BY id)"
    assert tables.error(f"{ordered} {operator} (SELECT 3)")[0] == 156
    assert tables.error(f"(SELECT 3) {operator} {ordered}")[0] == 156
    inner = "SELECT id FROM (SELECT TOP 1 id FROM sources ORDER BY id DESC) AS s"
    assert tables.rows(f"{inner} UNION ALL SELECT 3 ORDER BY id DESC") == [(3,), (2,)]


@pytest.mark.parametrize(("pattern", "escape"), [("a!_%", "!"), ("a\\_%", "\\"), ("a''_%", "''")])
def test_check_and_computed_column_may_escape_a_pattern(client: SqlClient, pattern: str, escape: str) -> None:
    like = f"LIKE '{pattern}' ESCAPE '{escape}'"
    client.run("DROP TABLE IF EXISTS escaped")
    client.run(f"CREATE TABLE escaped (n varchar(9) CHECK (n {like}), m AS (CASE WHEN n NOT {like} THEN 1 ELSE 2 END))")
    client.run("INSERT escaped VALUES ('a_b')")
    assert client.error("INSERT escaped VALUES ('axb')")[0] == 547
    assert client.rows("SELECT * FROM escaped") == [("a_b", 2)]
