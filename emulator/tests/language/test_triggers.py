"""Triggers of the user: AFTER and INSTEAD OF, over many rows, nested, refusing a change, on a table tracked by CDC."""

from __future__ import annotations

import time

import pytest

from emulator_process import Emulator
from sql_client import SqlClient

SCHEMA = """
CREATE TABLE dbo.Stock (ProductID int NOT NULL PRIMARY KEY, Quantity int NOT NULL,
    Price decimal(10,2) NOT NULL DEFAULT 1)
CREATE TABLE dbo.Audit (AuditID int IDENTITY(100,1) PRIMARY KEY, ProductID int, What varchar(20), Before int, After int,
    RowsSeen int)
CREATE TABLE dbo.AuditCount (Events int NOT NULL)
INSERT INTO dbo.AuditCount VALUES (0)
GO
CREATE TRIGGER dbo.trStock ON dbo.Stock AFTER INSERT, UPDATE, DELETE AS
BEGIN
    DECLARE @rows int = @@ROWCOUNT
    SET NOCOUNT ON
    IF UPDATE(Quantity)
        INSERT INTO dbo.Audit (ProductID, What, Before, After, RowsSeen)
        SELECT COALESCE(i.ProductID, d.ProductID), CASE WHEN d.ProductID IS NULL THEN 'insert' ELSE 'update' END,
               d.Quantity, i.Quantity, @rows
        FROM inserted AS i LEFT JOIN deleted AS d ON d.ProductID = i.ProductID
    IF NOT EXISTS (SELECT * FROM inserted)
        INSERT INTO dbo.Audit (ProductID, What, Before, RowsSeen)
        SELECT ProductID, 'delete', Quantity, @rows FROM deleted
END
GO
CREATE TRIGGER dbo.trAudit ON dbo.Audit FOR INSERT AS
    UPDATE dbo.AuditCount SET Events = Events + (SELECT COUNT(*) FROM inserted)
GO
CREATE TRIGGER dbo.trStockLimit ON dbo.Stock FOR UPDATE AS
IF EXISTS (SELECT * FROM inserted WHERE Quantity < 0)
BEGIN
    RAISERROR('No stock below zero.', 16, 1)
    ROLLBACK TRANSACTION
    RETURN
END
"""


@pytest.fixture(scope="module", autouse=True)
def schema(database: str, emulator: Emulator) -> None:
    connection = emulator.connect_pymssql(database, autocommit=True)
    SqlClient(connection).script(SCHEMA)
    connection.close()


@pytest.fixture(autouse=True)
def empty(client: SqlClient) -> None:
    client.run(
        "DISABLE TRIGGER ALL ON dbo.Stock; DELETE FROM dbo.Stock; ENABLE TRIGGER ALL ON dbo.Stock;"
        "TRUNCATE TABLE dbo.Audit; UPDATE dbo.AuditCount SET Events = 0"
    )


def audit(client: SqlClient) -> list[tuple[object, ...]]:
    return client.rows("SELECT ProductID, What, Before, After, RowsSeen FROM dbo.Audit ORDER BY AuditID, ProductID")


def test_a_trigger_sees_all_rows_of_a_statement_at_once(client: SqlClient) -> None:
    client.run("INSERT INTO dbo.Stock (ProductID, Quantity) VALUES (1, 10), (2, 20), (3, 30)")
    client.run("UPDATE dbo.Stock SET Quantity = Quantity + 1 WHERE ProductID > 1")
    client.run("DELETE FROM dbo.Stock WHERE ProductID = 3")
    client.run("DELETE FROM dbo.Stock WHERE ProductID = 99")
    assert sorted(audit(client), key=str) == sorted(
        [
            (1, "insert", None, 10, 3),
            (2, "insert", None, 20, 3),
            (3, "insert", None, 30, 3),
            (2, "update", 20, 21, 2),
            (3, "update", 30, 31, 2),
            (3, "delete", 31, None, 1),
        ],
        key=str,
    )
    assert client.value("SELECT Events FROM dbo.AuditCount") == 6, "a trigger's change fires triggers too"


def test_update_of_a_column_asks_what_the_statement_assigns(client: SqlClient) -> None:
    client.run("INSERT INTO dbo.Stock (ProductID, Quantity) VALUES (1, 10)")
    client.run("UPDATE dbo.Stock SET Price = 2")
    client.run("UPDATE dbo.Stock SET Quantity = Quantity")
    assert [row[1:4] for row in audit(client)] == [("insert", None, 10), ("update", 10, 10)]


def test_merge_fires_a_trigger_for_each_kind_of_change(client: SqlClient) -> None:
    client.run("INSERT INTO dbo.Stock (ProductID, Quantity) VALUES (1, 10)")
    client.run(
        "MERGE dbo.Stock AS t USING (VALUES (1, 11), (2, 5)) AS s (id, q) ON t.ProductID = s.id "
        "WHEN MATCHED THEN UPDATE SET Quantity = s.q "
        "WHEN NOT MATCHED THEN INSERT (ProductID, Quantity) VALUES (s.id, s.q);"
    )
    assert {row[:4] for row in audit(client)} == {
        (1, "insert", None, 10),
        (1, "update", 10, 11),
        (2, "insert", None, 5),
    }


def test_a_rollback_in_a_trigger_undoes_the_statement_and_ends_the_batch(client: SqlClient) -> None:
    client.run("INSERT INTO dbo.Stock (ProductID, Quantity) VALUES (1, 10)")
    number, message = client.error("UPDATE dbo.Stock SET Quantity = -1; DELETE FROM dbo.Stock")
    assert "No stock below zero." in message or number == 3609
    assert client.rows("SELECT ProductID, Quantity FROM dbo.Stock") == [(1, 10)]
    assert client.value("SELECT @@TRANCOUNT") == 0
    assert len(audit(client)) == 1


def test_a_rollback_in_a_trigger_ends_the_callers_transaction(client: SqlClient) -> None:
    client.run("INSERT INTO dbo.Stock (ProductID, Quantity) VALUES (1, 10)")
    client.error("BEGIN TRAN; INSERT INTO dbo.AuditCount VALUES (77); UPDATE dbo.Stock SET Quantity = -1; COMMIT")
    assert client.rows("SELECT @@TRANCOUNT, (SELECT COUNT(*) FROM dbo.AuditCount)") == [(0, 1)]


def test_an_error_in_a_trigger_reaches_the_callers_catch(client: SqlClient) -> None:
    client.script(
        """
        CREATE TABLE dbo.Guarded (id int PRIMARY KEY)
        GO
        CREATE TRIGGER dbo.trGuarded ON dbo.Guarded AFTER INSERT AS
        IF EXISTS (SELECT * FROM inserted WHERE id > 100) THROW 50001, 'Too big.', 1
        """
    )
    batch = """
        BEGIN TRY INSERT INTO dbo.Guarded VALUES (1), (101) END TRY
        BEGIN CATCH SELECT ERROR_NUMBER(), ERROR_MESSAGE(), ERROR_PROCEDURE(), @@TRANCOUNT END CATCH
    """
    assert client.rows(batch) == [(50001, "Too big.", "trGuarded", 0)]
    in_transaction = f"BEGIN TRAN; {batch.replace('@@TRANCOUNT', 'XACT_STATE()')}; ROLLBACK"
    assert client.rows(in_transaction) == [(50001, "Too big.", "trGuarded", -1)]
    assert client.error("INSERT INTO dbo.Guarded VALUES (102)")[0] == 50001
    assert client.value("SELECT COUNT(*) FROM dbo.Guarded") == 0


def test_scope_identity_is_that_of_the_statement_and_not_of_its_trigger(client: SqlClient) -> None:
    client.script(
        """
        CREATE TABLE dbo.Orders (OrderID int IDENTITY(1,1) PRIMARY KEY, ProductID int)
        GO
        CREATE TRIGGER dbo.trOrders ON dbo.Orders AFTER INSERT AS
        INSERT INTO dbo.Audit (ProductID, What) SELECT ProductID, 'order' FROM inserted
        """
    )
    rows = client.rows("INSERT INTO dbo.Orders (ProductID) VALUES (7); SELECT SCOPE_IDENTITY(), @@IDENTITY")
    assert rows == [(1, 100)]


def test_output_clause_with_a_trigger_is_refused_as_in_the_server(client: SqlClient) -> None:
    number, _ = client.error("INSERT INTO dbo.Stock (ProductID, Quantity) OUTPUT inserted.ProductID VALUES (5, 1)")
    assert number == 334
    assert client.value("SELECT COUNT(*) FROM dbo.Stock") == 0
    client.run(
        "DECLARE @t TABLE (id int); INSERT INTO dbo.Stock (ProductID, Quantity) OUTPUT inserted.ProductID INTO @t "
        "VALUES (5, 1)"
    )
    assert len(audit(client)) == 1


def test_a_disabled_or_dropped_trigger_does_not_fire(client: SqlClient) -> None:
    client.run("ALTER TABLE dbo.Stock DISABLE TRIGGER trStock")
    client.run("INSERT INTO dbo.Stock (ProductID, Quantity) VALUES (1, 10)")
    assert client.rows("SELECT is_disabled FROM sys.triggers WHERE name = 'trStock'") == [(True,)]
    client.run("ENABLE TRIGGER trStock ON dbo.Stock")
    assert audit(client) == []
    client.script(
        """
        CREATE TRIGGER dbo.trGone ON dbo.Stock AFTER DELETE AS THROW 50002, 'Never.', 1
        GO
        DROP TRIGGER IF EXISTS dbo.trGone, dbo.trNeverWas
        GO
        DELETE FROM dbo.Stock
        """
    )
    assert [row[1] for row in audit(client)] == ["delete"]


def test_an_instead_of_trigger_makes_a_view_writable(client: SqlClient) -> None:
    client.script(
        """
        CREATE VIEW dbo.StockNames AS
        SELECT ProductID, Quantity, 'P' + CAST(ProductID AS varchar(10)) AS Label FROM dbo.Stock
        GO
        CREATE TRIGGER dbo.trStockNames ON dbo.StockNames INSTEAD OF INSERT AS
        INSERT INTO dbo.Stock (ProductID, Quantity) SELECT ProductID * 10, Quantity FROM inserted
        GO
        INSERT INTO dbo.StockNames (ProductID, Quantity) VALUES (1, 4), (2, 5)
        """
    )
    assert client.rows("SELECT ProductID, Label FROM dbo.StockNames ORDER BY 1") == [(10, "P10"), (20, "P20")]


def test_an_instead_of_trigger_may_do_the_change_itself(client: SqlClient) -> None:
    client.script(
        """
        CREATE TABLE dbo.Soft (id int PRIMARY KEY, gone bit NOT NULL DEFAULT 0)
        GO
        CREATE TRIGGER dbo.trSoft ON dbo.Soft INSTEAD OF DELETE AS
        BEGIN
            UPDATE s SET gone = 1 FROM dbo.Soft AS s JOIN deleted AS d ON d.id = s.id
            DELETE FROM dbo.Soft WHERE id IN (SELECT id FROM deleted WHERE id > 2)
        END
        GO
        INSERT INTO dbo.Soft (id) VALUES (1), (2), (3)
        DELETE FROM dbo.Soft WHERE id <> 2
        """
    )
    assert client.rows("SELECT id, gone FROM dbo.Soft ORDER BY id") == [(1, True), (2, False)]


def test_a_cascade_fires_the_triggers_of_the_other_table(client: SqlClient) -> None:
    client.script(
        """
        CREATE TABLE dbo.Parent (id int PRIMARY KEY)
        CREATE TABLE dbo.Child (id int PRIMARY KEY, parent int REFERENCES dbo.Parent (id) ON DELETE CASCADE)
        INSERT INTO dbo.Parent VALUES (1), (2)
        INSERT INTO dbo.Child VALUES (10, 1), (11, 1), (20, 2)
        GO
        CREATE TRIGGER dbo.trChild ON dbo.Child AFTER DELETE AS
        INSERT INTO dbo.Audit (ProductID, What) SELECT id, 'child' FROM deleted
        GO
        DELETE FROM dbo.Parent WHERE id = 1
        """
    )
    assert [row[:2] for row in audit(client)] == [(10, "child"), (11, "child")]


def test_changes_of_a_trigger_are_captured_in_the_transaction_of_the_statement(client: SqlClient) -> None:
    client.script(
        """
        EXEC sys.sp_cdc_enable_db
        GO
        EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'Stock', @role_name = NULL
        EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'Audit', @role_name = NULL
        GO
        INSERT INTO dbo.Stock (ProductID, Quantity) VALUES (1, 10), (2, 20)
        """
    )
    changes = """
        SELECT s.__$start_lsn, s.__$operation, a.__$operation, a.What FROM cdc.dbo_Stock_CT AS s
        JOIN cdc.dbo_Audit_CT AS a ON a.__$start_lsn = s.__$start_lsn AND a.ProductID = s.ProductID
    """
    end = time.monotonic() + 30
    while len(rows := client.rows(changes)) < 2 and time.monotonic() < end:
        client.run("WAITFOR DELAY '00:00:00.050'")
    assert {row[1:] for row in rows} == {(2, 2, "insert")}
    assert len({row[0] for row in rows}) == 1
    client.run("EXEC sys.sp_cdc_disable_db")


def test_a_table_of_the_same_name_as_a_callers_table_variable(client: SqlClient) -> None:
    client.script(
        """
        CREATE PROCEDURE dbo.Inner_ AS
        DECLARE @t TABLE (n int); INSERT @t VALUES (2); SELECT n FROM @t
        GO
        CREATE PROCEDURE dbo.Outer_ AS
        DECLARE @t TABLE (n int, m int); INSERT @t VALUES (1, 1); EXEC dbo.Inner_; SELECT n, m FROM @t
        """
    )
    assert client.run("EXEC dbo.Outer_") == [[(2,)], [(1, 1)]]
