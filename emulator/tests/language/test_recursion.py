"""Recursive common table expressions and MAXRECURSION."""

from __future__ import annotations

import pytest

from sql_client import SqlClient

COUNT_TO = "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT COUNT(*), MAX(i) FROM n {}"
ENDLESS = "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 0 FROM n) SELECT i FROM n"
EXHAUSTED = "The statement terminated. The maximum recursion {} has been exhausted before statement completion."


def test_hundred_recursions_are_allowed_and_not_one_more(client: SqlClient) -> None:
    assert client.rows(COUNT_TO.format(101, "")) == [(101, 101)]
    number, message = client.error(COUNT_TO.format(102, ""))
    assert number == 530
    assert EXHAUSTED.format(100) in message


def test_endless_recursion_ends_with_an_error(client: SqlClient) -> None:
    assert client.error(ENDLESS)[0] == 530


def test_option_sets_another_limit(client: SqlClient) -> None:
    assert client.rows(COUNT_TO.format(6, "OPTION (MAXRECURSION 5)")) == [(6, 6)]
    number, message = client.error(COUNT_TO.format(7, "OPTION (MAXRECURSION 5)"))
    assert (number, EXHAUSTED.format(5) in message) == (530, True)


def test_zero_means_no_limit(client: SqlClient) -> None:
    assert client.rows(COUNT_TO.format(5000, "OPTION (MAXRECURSION 0)")) == [(5000, 5000)]


def test_limit_holds_for_its_statement_only(client: SqlClient) -> None:
    batch = f"{COUNT_TO.format(300, 'OPTION (MAXRECURSION 0)')}; {COUNT_TO.format(300, '')}"
    assert client.error(batch)[0] == 530


def test_limit_above_32767_is_refused(client: SqlClient) -> None:
    number, message = client.error(COUNT_TO.format(5, "OPTION (MAXRECURSION 32768)"))
    assert number == 310
    assert "32768" in message


def test_error_of_recursion_is_caught_and_the_transaction_goes_on(client: SqlClient) -> None:
    client.script("CREATE TABLE kept (id int)")
    batch = """
        BEGIN TRANSACTION
        INSERT kept VALUES (1)
        BEGIN TRY
            WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 0 FROM n) INSERT kept SELECT i FROM n
        END TRY
        BEGIN CATCH
            SELECT ERROR_NUMBER(), XACT_STATE()
        END CATCH
        COMMIT"""
    assert client.rows(batch) == [(530, 1)]
    assert client.rows("SELECT id FROM kept") == [(1,)]


def test_limit_reaches_the_views_that_a_statement_reads(client: SqlClient) -> None:
    client.run(
        "CREATE VIEW numbers AS WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT i FROM n"
    )
    assert client.error("SELECT COUNT(*) FROM numbers")[0] == 530
    assert client.rows("SELECT COUNT(*) FROM numbers OPTION (MAXRECURSION 500)") == [(500,)]
    assert client.rows("SELECT COUNT(*) FROM numbers WHERE i > 1 OPTION (MAXRECURSION 0)") == [(499,)]


def test_rows_stay_as_they_were_selected(client: SqlClient) -> None:
    client.script(
        "CREATE TABLE parts (id int, parent int, name nvarchar(10))\nGO\n"
        "INSERT parts VALUES (1, NULL, N'a'), (2, 1, N'b'), (3, 2, N'c'), (4, 1, N'd')"
    )
    tree = (
        "WITH tree AS (SELECT id, name, 0 AS depth, CAST(name AS nvarchar(100)) AS path FROM parts WHERE parent IS NULL"
        " UNION ALL SELECT p.id, p.name, t.depth + 1, CAST(t.path + N'/' + p.name AS nvarchar(100))"
        " FROM parts p JOIN tree t ON p.parent = t.id) SELECT * FROM tree ORDER BY path"
    )
    assert client.rows(tree) == [(1, "a", 0, "a"), (2, "b", 1, "a/b"), (3, "c", 2, "a/b/c"), (4, "d", 1, "a/d")]


def test_derived_table_may_hold_the_recursive_reference(client: SqlClient) -> None:
    step = "SELECT d.i + 1 FROM (SELECT i FROM n WHERE i < {}) AS d"
    batch = f"WITH n AS (SELECT 1 AS i UNION ALL {step}) SELECT MAX(i) FROM n"
    assert client.rows(batch.format(50)) == [(50,)]
    assert client.error(batch.format(150))[0] == 530


def test_several_members_recur_together(client: SqlClient) -> None:
    batch = (
        "WITH n AS (SELECT 1 AS i UNION ALL SELECT i * 2 FROM n WHERE i < 8"
        " UNION ALL SELECT i * 3 FROM n WHERE i < 8) SELECT i FROM n ORDER BY i"
    )
    assert [row[0] for row in client.rows(batch)] == [1, 2, 3, 4, 6, 6, 8, 9, 12, 12, 12, 18, 18]


@pytest.mark.parametrize(
    ("member", "number"),
    [
        ("SELECT DISTINCT i + 1 FROM n", 460),
        ("SELECT TOP (1) i + 1 FROM n", 461),
        ("SELECT MAX(i) FROM n GROUP BY i", 467),
        ("SELECT a.i FROM n a JOIN n b ON a.i = b.i", 253),
        ("SELECT 2 WHERE EXISTS (SELECT 1 FROM n)", 465),
    ],
)
def test_recursive_member_may_not_hold(client: SqlClient, member: str, number: int) -> None:
    assert client.error(f"WITH n AS (SELECT 1 AS i UNION ALL {member}) SELECT i FROM n")[0] == number
