"""ALTER TABLE, indexes and views as migrations use them."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


@pytest.fixture(autouse=True)
def table(client: SqlClient) -> None:
    client.run(
        "DROP VIEW IF EXISTS dbo.Big; DROP TABLE IF EXISTS dbo.T;"
        "CREATE TABLE dbo.T (id int IDENTITY PRIMARY KEY, a int, b varchar(20) NOT NULL DEFAULT 'x',"
        " CONSTRAINT CK_A CHECK (a > 0)); INSERT dbo.T (a) VALUES (1), (20)"
    )


def test_a_check_constraint_is_switched_off_and_on(client: SqlClient) -> None:
    state = "SELECT is_disabled, is_not_trusted FROM sys.check_constraints WHERE name = 'CK_A'"
    client.run("ALTER TABLE dbo.T NOCHECK CONSTRAINT ALL; INSERT dbo.T (a) VALUES (-1)")
    assert client.rows(state) == [(True, True)]
    client.run("ALTER TABLE dbo.T CHECK CONSTRAINT CK_A")
    assert client.error("INSERT dbo.T (a) VALUES (-2)")[0] == 547
    assert client.rows(state) == [(False, True)]
    assert client.error("ALTER TABLE dbo.T WITH CHECK CHECK CONSTRAINT CK_A")[0] == 547
    client.run("DELETE dbo.T WHERE a < 0; ALTER TABLE dbo.T WITH CHECK CHECK CONSTRAINT CK_A")
    assert client.rows(state) == [(False, False)]


def test_a_constraint_added_with_nocheck_leaves_old_rows_alone(client: SqlClient) -> None:
    assert client.error("ALTER TABLE dbo.T ADD CONSTRAINT CK_Small CHECK (a < 10)")[0] == 547
    client.run("ALTER TABLE dbo.T WITH NOCHECK ADD CONSTRAINT CK_Small CHECK (a < 10)")
    assert client.error("INSERT dbo.T (a) VALUES (11)")[0] == 547


def test_views_bound_to_the_schema_and_with_check_option(client: SqlClient) -> None:
    client.script(
        """
        CREATE VIEW dbo.Big WITH SCHEMABINDING AS SELECT id, a FROM dbo.T WHERE a > 10 WITH CHECK OPTION
        GO
        INSERT dbo.Big (a) VALUES (30)
        """
    )
    assert client.rows("SELECT a FROM dbo.Big ORDER BY a") == [(20,), (30,)]
    assert client.error("INSERT dbo.Big (a) VALUES (3)")[0] == 550


def test_statements_about_storage_are_accepted(client: SqlClient) -> None:
    client.script(
        """
        ALTER TABLE dbo.T SET (LOCK_ESCALATION = TABLE)
        ALTER TABLE dbo.T REBUILD
        CREATE INDEX IX_A ON dbo.T (a)
        ALTER INDEX IX_A ON dbo.T SET (ALLOW_PAGE_LOCKS = ON)
        CREATE STATISTICS ST_A ON dbo.T (a)
        UPDATE STATISTICS dbo.T
        CHECKPOINT
        """
    )
    assert client.value("SELECT COUNT(*) FROM sys.indexes WHERE name = 'IX_A'") == 1


def test_a_computed_column_that_changes_by_itself_is_refused_by_name(client: SqlClient) -> None:
    number, message = client.error("ALTER TABLE dbo.T ADD age AS DATEDIFF(day, '2020-01-01', GETDATE())")
    assert (number, "computed columns" in message) == (49999, True)


def test_the_text_of_a_module_is_shown_line_by_line(client: SqlClient) -> None:
    client.run("CREATE OR ALTER PROCEDURE dbo.Shown AS\nSELECT 1 AS one\n")
    assert client.rows("EXEC sp_helptext 'dbo.Shown'") == [
        ("CREATE OR ALTER PROCEDURE dbo.Shown AS\n",),
        ("SELECT 1 AS one",),
    ]
    assert client.error("EXEC sp_helptext 'dbo.T'")[0] == 15197
    assert client.error("EXEC sp_helptext 'dbo.NotThere'")[0] == 15009


@pytest.mark.parametrize(
    "batch",
    [
        "ALTER INDEX ALL ON dbo.T DISABLE",
        "CREATE TABLE #t (a int); ALTER TABLE #t ADD b int",
        "EXECUTE AS USER = 'dbo'",
        "CREATE TRIGGER trAll ON DATABASE FOR CREATE_TABLE AS PRINT 'x'",
    ],
)
def test_what_is_not_there_is_refused_by_name(client: SqlClient, batch: str) -> None:
    assert client.error(batch)[0] == 49999


@pytest.mark.parametrize(
    ("expression", "is_nullable"),
    [("a", False), ("([a])", False), ("ISNULL(b, 0)", False), ("b", True), ("a + 1", True), ("ISNULL(a, 0) + b", True)],
)
def test_computed_column_is_never_null_where_its_expression_says_so(
    client: SqlClient, expression: str, is_nullable: bool
) -> None:
    client.run(f"DROP TABLE IF EXISTS dbo.C; CREATE TABLE dbo.C (a int NOT NULL, b int NULL, c AS {expression})")
    found = "SELECT is_nullable FROM sys.columns WHERE object_id = OBJECT_ID(N'dbo.C') AND name = N'c'"
    assert client.rows(found) == [(is_nullable,)]
    key = "DROP TABLE dbo.C; CREATE TABLE dbo.C (a int NOT NULL, b int NULL, c AS {0} PRIMARY KEY)"
    if is_nullable:
        assert client.error(key.format(expression))[0] in (1711, 8111)
    else:
        client.run(key.format(expression))
