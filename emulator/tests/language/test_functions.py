"""Functions of the user: scalar, inline and with statements, in queries, constraints, computed columns and views."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sql_client import SqlClient

SCHEMA = """
CREATE TABLE dbo.Lines (OrderID int NOT NULL, LineNo_ int NOT NULL, Quantity int NOT NULL, Price decimal(10,2) NOT NULL,
    CONSTRAINT PK_Lines PRIMARY KEY (OrderID, LineNo_))
GO
INSERT INTO dbo.Lines VALUES (1, 1, 2, 10.50), (1, 2, 1, 4.00), (2, 1, 5, 1.20)
GO
CREATE FUNCTION dbo.OrderTotal (@order int, @rate decimal(4,2) = 1)
RETURNS decimal(12,2)
AS
BEGIN
    DECLARE @total decimal(12,2)
    SELECT @total = SUM(Quantity * Price) FROM dbo.Lines WHERE OrderID = @order
    IF @total IS NULL
        SET @total = 0
    RETURN @total * @rate
END
GO
CREATE FUNCTION dbo.Factorial (@n int) RETURNS bigint AS
BEGIN
    IF @n <= 1 RETURN 1
    RETURN @n * dbo.Factorial(@n - 1)
END
GO
CREATE FUNCTION dbo.Padded (@text varchar(5), @width int) RETURNS varchar(20) WITH SCHEMABINDING AS
BEGIN
    DECLARE @i int = LEN(@text), @out varchar(20) = @text
    WHILE @i < @width
    BEGIN
        SET @i += 1
        IF @i = 10 BREAK
        SET @out = @out + '.'
    END
    RETURN @out
END
GO
CREATE FUNCTION dbo.LinesOf (@order int) RETURNS TABLE AS
RETURN (SELECT l.LineNo_, l.Quantity * l.Price AS Amount, l.Price FROM dbo.Lines AS l WHERE l.OrderID = @order)
GO
CREATE FUNCTION dbo.Numbers (@from int, @to int = 3)
RETURNS @result TABLE (n int NOT NULL PRIMARY KEY, square bigint, label nvarchar(10) DEFAULT N'none')
AS
BEGIN
    DECLARE @i int
    SET @i = @from
    WHILE @i <= @to
    BEGIN
        INSERT INTO @result (n, square) VALUES (@i, @i * @i)
        SET @i = @i + 1
    END
    UPDATE @result SET label = N'big' WHERE square > 4
    DELETE FROM @result WHERE n = 2
    RETURN
END
"""


@pytest.fixture(scope="module", autouse=True)
def schema(database: str, emulator: object) -> None:
    connection = emulator.connect_pymssql(database, autocommit=True)  # type: ignore[attr-defined]
    SqlClient(connection).script(SCHEMA)
    connection.close()


def test_a_scalar_function_reads_tables_and_takes_defaults(client: SqlClient) -> None:
    rows = client.rows(
        "SELECT DISTINCT OrderID, dbo.OrderTotal(OrderID, DEFAULT), dbo.OrderTotal(OrderID, 0.5) "
        "FROM dbo.Lines ORDER BY OrderID"
    )
    assert rows == [(1, Decimal("25.00"), Decimal("12.50")), (2, Decimal("6.00"), Decimal("3.00"))]
    assert client.value("SELECT dbo.OrderTotal(99, 1)") == 0


def test_a_scalar_function_calls_itself(client: SqlClient) -> None:
    assert client.value("SELECT dbo.Factorial(10)") == 3628800


def test_a_loop_in_a_function_ends_at_break_and_arguments_are_cut(client: SqlClient) -> None:
    assert client.rows("SELECT dbo.Padded('abcdefgh', 7), dbo.Padded('x', 50)") == [("abcde..", "x" + "." * 8)]


def test_an_inline_function_is_applied_to_rows(client: SqlClient) -> None:
    rows = client.rows(
        "SELECT o.OrderID, f.LineNo_, f.Amount FROM (SELECT DISTINCT OrderID FROM dbo.Lines) AS o "
        "CROSS APPLY dbo.LinesOf(o.OrderID) AS f ORDER BY o.OrderID, f.LineNo_"
    )
    assert rows == [(1, 1, Decimal("21.00")), (1, 2, Decimal("4.00")), (2, 1, Decimal("6.00"))]


def test_a_function_with_statements_gives_the_rows_of_its_table_variable(client: SqlClient) -> None:
    assert client.rows("SELECT * FROM dbo.Numbers(1, DEFAULT) ORDER BY n") == [(1, 1, "none"), (3, 9, "big")]
    rows = client.rows("SELECT a.n, b.n FROM dbo.Numbers(1, 1) a JOIN dbo.Numbers(0, 1) b ON b.n <= a.n ORDER BY 2")
    assert rows == [(1, 0), (1, 1)]


def test_a_function_in_a_batch_with_a_table_variable_of_the_same_name(client: SqlClient) -> None:
    batch = "DECLARE @result TABLE (n int); INSERT @result SELECT n FROM dbo.Numbers(4, 5); SELECT n FROM @result"
    assert client.rows(batch) == [(4,), (5,)]


def test_functions_in_checks_defaults_computed_columns_and_views(client: SqlClient) -> None:
    client.script(
        """
        CREATE TABLE dbo.Uses (id int PRIMARY KEY, code varchar(5) NOT NULL,
            padded AS (dbo.Padded(code, 5)) PERSISTED, total decimal(12,2) DEFAULT (dbo.OrderTotal(1, 1)),
            CONSTRAINT CK_Uses CHECK (dbo.Factorial(id) < 1000))
        GO
        CREATE VIEW dbo.Totals AS SELECT id, dbo.OrderTotal(id, 1) AS total FROM dbo.Uses
        GO
        INSERT INTO dbo.Uses (id, code) VALUES (1, 'ab')
        """
    )
    assert client.rows("SELECT padded, total FROM dbo.Uses") == [("ab...", Decimal("25.00"))]
    assert client.rows("SELECT total FROM dbo.Totals") == [(Decimal("25.00"),)]
    number, message = client.error("INSERT INTO dbo.Uses (id, code) VALUES (9, 'x')")
    assert number == 547
    assert "CK_Uses" in message


def test_altering_a_function_changes_its_callers(client: SqlClient) -> None:
    client.script(
        """
        CREATE FUNCTION dbo.Version_ () RETURNS int AS BEGIN RETURN 1 END
        GO
        CREATE VIEW dbo.ShowsVersion AS SELECT dbo.Version_() AS v
        GO
        CREATE OR ALTER FUNCTION dbo.Version_ () RETURNS varchar(10) AS BEGIN RETURN 'two' END
        """
    )
    assert client.value("SELECT v FROM dbo.ShowsVersion") == "two"
    client.run("DROP FUNCTION IF EXISTS dbo.Version_")
    assert client.error("SELECT dbo.Version_()")[0] == 4121
    assert client.error("DROP FUNCTION dbo.Version_")[0] == 3701


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ("SET @x = 2", 455),
        ("INSERT INTO dbo.Lines VALUES (9, 9, 9, 9) RETURN 1", 443),
        ("SELECT 1 RETURN 1", 444),
        ("EXEC sp_who RETURN 1", 557),
        ("PRINT 'x' RETURN 1", 443),
    ],
)
def test_a_function_with_effects_is_refused(client: SqlClient, body: str, number: int) -> None:
    assert client.error(f"CREATE FUNCTION dbo.Bad (@x int) RETURNS int AS BEGIN {body} END")[0] == number


def test_functions_are_in_the_catalog(client: SqlClient) -> None:
    rows = client.rows(
        "SELECT name, type FROM sys.objects WHERE type IN ('FN','IF','TF') AND name LIKE '%[fs]%' ORDER BY name"
    )
    assert ("LinesOf", "IF") in rows
    assert ("Numbers", "TF") in rows
    assert client.value("SELECT OBJECT_ID('dbo.OrderTotal', 'FN')") is not None
    assert "CREATE FUNCTION dbo.LinesOf" in client.value("SELECT OBJECT_DEFINITION(OBJECT_ID('dbo.LinesOf'))")
