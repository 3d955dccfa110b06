"""mssql-jdbc itself, unmodified, driven from Python through Spark's JVM."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any

import pytest

from jdbc_body import MANY, chosen, error_of, query, rows_of, run
from jdbc_jvm import Jdbc

# py4j leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

SNAPSHOT = 0x1000
RETURN_GENERATED_KEYS = 1
INTEGER, NVARCHAR, DECIMAL = 4, -9, 3


@pytest.mark.parametrize(
    "options", [{"encrypt": "true"}, {"encrypt": "false"}, {"encrypt": "strict"}, {"packetSize": "512"}]
)
def test_jdbc_logs_in_with_and_without_tls(jdbc: Jdbc, options: dict[str, str]) -> None:
    connection = jdbc.connect(**options)
    text = "é" * 40_000
    assert query(connection, "SELECT DB_NAME(), SUSER_SNAME(), ?", text) == [(jdbc.database, "sa", text)]
    assert connection.isValid(5)
    connection.close()


def test_a_refused_login_and_an_unknown_certificate_say_so(jdbc: Jdbc) -> None:
    assert error_of(lambda: jdbc.connect(password="wrong")).getErrorCode() == 18456
    assert error_of(lambda: jdbc.connect(databaseName="Nowhere")).getErrorCode() in (4060, 18456)
    distrusted = error_of(lambda: jdbc.connect(trustStore="/nowhere.p12")).getMessage()
    assert "could not establish a secure connection" in distrusted


def test_the_server_says_what_it_is(connection: Any) -> None:
    facts = connection.getMetaData()
    assert (facts.getDatabaseProductName(), facts.getDatabaseMajorVersion()) == ("Microsoft SQL Server", 16)
    assert facts.getUserName() == "sa"
    assert facts.getMaxConnections() == 32767
    assert "master" in [row[0] for row in rows_of(facts.getCatalogs())]
    assert ("dbo", None) in chosen(facts.getSchemas(), "TABLE_SCHEM", "TABLE_CATALOG")
    assert sorted(row[0] for row in rows_of(facts.getTableTypes())) == ["SYSTEM TABLE", "TABLE", "VIEW"]
    types = dict(chosen(facts.getTypeInfo(), "TYPE_NAME", "DATA_TYPE"))
    assert (types["int"], types["nvarchar"], types["datetime2"]) == ("4", "-9", "93")


def test_tables_and_columns_are_described(jdbc: Jdbc, connection: Any) -> None:
    run(connection, "CREATE SCHEMA jdbc_a")
    run(
        connection,
        "CREATE TABLE jdbc_a.Described (Id bigint IDENTITY NOT NULL, Name nvarchar(20) NULL"
        " CONSTRAINT DF_J DEFAULT N'x', Price decimal(10,2) NOT NULL, Twice AS Price * 2,"
        " At datetime2(3) NULL, Version rowversion)",
    )
    run(connection, "CREATE VIEW jdbc_a.Described_view AS SELECT Id FROM jdbc_a.Described")
    facts = connection.getMetaData()
    tables = facts.getTables(jdbc.database, "jdbc_a", "Described%", None)
    assert chosen(tables, "TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE") == [
        (jdbc.database, "jdbc_a", "Described", "TABLE"),
        (jdbc.database, "jdbc_a", "Described_view", "VIEW"),
    ]
    only_views = jdbc.session._sc._gateway.new_array(jdbc.session._jvm.java.lang.String, 1)
    only_views[0] = "VIEW"
    assert chosen(facts.getTables(None, "jdbc_a", "%", only_views), "TABLE_NAME") == [("Described_view",)]
    columns = facts.getColumns(jdbc.database, "jdbc_a", "Described", "%")
    wanted = ("COLUMN_NAME", "TYPE_NAME", "DATA_TYPE", "COLUMN_SIZE", "DECIMAL_DIGITS", "IS_NULLABLE", "COLUMN_DEF")
    assert chosen(columns, *wanted, "IS_AUTOINCREMENT", "IS_GENERATEDCOLUMN") == [
        ("Id", "bigint identity", "-5", "19", "0", "NO", None, "YES", "NO"),
        ("Name", "nvarchar", "-9", "20", None, "YES", "(N'x')", "NO", "NO"),
        ("Price", "decimal", "3", "10", "2", "NO", None, "NO", "NO"),
        ("Twice", "decimal", "3", "12", "2", "YES", None, "NO", "YES"),
        ("At", "datetime2", "93", "23", "3", "YES", None, "NO", "NO"),
        ("Version", "timestamp", "-2", "8", None, "NO", None, "NO", "NO"),
    ]
    assert chosen(facts.getVersionColumns(None, "jdbc_a", "Described"), "COLUMN_NAME") == [("Version",)]


def test_keys_and_indexes_are_described(connection: Any) -> None:
    run(connection, "CREATE SCHEMA jdbc_b")
    run(
        connection,
        "CREATE TABLE jdbc_b.Parent (A int NOT NULL, B int NOT NULL, Code varchar(5) NULL,"
        " CONSTRAINT PK_JParent PRIMARY KEY (B, A))",
    )
    run(
        connection,
        "CREATE TABLE jdbc_b.Child (Id int NOT NULL CONSTRAINT PK_JChild PRIMARY KEY, B int, A int,"
        " CONSTRAINT FK_JChild FOREIGN KEY (B, A) REFERENCES jdbc_b.Parent (B, A)"
        " ON DELETE CASCADE ON UPDATE SET NULL)",
    )
    run(connection, "CREATE UNIQUE INDEX UX_JCode ON jdbc_b.Parent (Code DESC)")
    run(connection, "CREATE INDEX IX_JA ON jdbc_b.Parent (A)")
    facts = connection.getMetaData()
    keys = facts.getPrimaryKeys(None, "jdbc_b", "Parent")
    assert chosen(keys, "COLUMN_NAME", "KEY_SEQ", "PK_NAME") == [("B", "1", "PK_JParent"), ("A", "2", "PK_JParent")]
    foreign = [("Parent", "B", "Child", "B", "1", "2", "0"), ("Parent", "A", "Child", "A", "2", "2", "0")]
    names = ("PKTABLE_NAME", "PKCOLUMN_NAME", "FKTABLE_NAME", "FKCOLUMN_NAME", "KEY_SEQ", "UPDATE_RULE", "DELETE_RULE")
    assert chosen(facts.getImportedKeys(None, "jdbc_b", "Child"), *names) == foreign
    assert chosen(facts.getExportedKeys(None, "jdbc_b", "Parent"), *names) == foreign
    cross = facts.getCrossReference(None, "jdbc_b", "Parent", None, "jdbc_b", "Child")
    assert chosen(cross, "FK_NAME", "PK_NAME") == [("FK_JChild", "PK_JParent")] * 2
    shown = ("INDEX_NAME", "NON_UNIQUE", "TYPE", "ORDINAL_POSITION", "COLUMN_NAME", "ASC_OR_DESC")
    assert chosen(facts.getIndexInfo(None, "jdbc_b", "Parent", False, True), *shown) == [
        (None, None, "0", None, None, None),
        ("PK_JParent", "0", "1", "1", "B", "A"),
        ("PK_JParent", "0", "1", "2", "A", "A"),
        ("UX_JCode", "0", "3", "1", "Code", "D"),
        ("IX_JA", "1", "3", "1", "A", "A"),
    ]
    best = facts.getBestRowIdentifier(None, "jdbc_b", "Parent", 1, False)
    assert chosen(best, "COLUMN_NAME") == [("B",), ("A",)]


def test_procedures_and_their_parameters_are_described(connection: Any) -> None:
    run(connection, "CREATE SCHEMA jdbc_c")
    run(
        connection,
        "CREATE PROCEDURE jdbc_c.P @First int, @b nvarchar(20) = N'x', @c decimal(10,2) OUTPUT AS SET @c = 1",
    )
    facts = connection.getMetaData()
    assert chosen(facts.getProcedures(None, "jdbc_c", "%"), "PROCEDURE_NAME", "PROCEDURE_TYPE") == [("P;1", "2")]
    columns = facts.getProcedureColumns(None, "jdbc_c", "P", "%")
    assert chosen(columns, "COLUMN_NAME", "COLUMN_TYPE", "TYPE_NAME", "PRECISION", "SCALE") == [
        ("@RETURN_VALUE", "5", "int", "10", "0"),
        ("@First", "1", "int", "10", "0"),
        ("@b", "1", "nvarchar", "20", None),
        ("@c", "2", "decimal", "10", "2"),
    ]


def test_a_prepared_statement_runs_again_and_again(connection: Any, table: str) -> None:
    insert = connection.prepareStatement(f"INSERT INTO {table} (Name, Price) VALUES (?, ?)")
    for name, price in (("a", Decimal("1.50")), ("é🌊", None), ("c", Decimal("-0.01"))):
        insert.setString(1, name)
        insert.setBigDecimal(2, price)
        assert insert.executeUpdate() == 1
    found = connection.prepareStatement(f"SELECT Name, Price FROM {table} WHERE Id = ?")
    rows = []
    for number in (1, 2, 3, 4):
        found.setInt(1, number)
        rows.append(rows_of(found.executeQuery()))
    assert rows == [[("a", Decimal("1.50"))], [("é🌊", None)], [("c", Decimal("-0.01"))], []]
    found.setNull(1, INTEGER)
    assert rows_of(found.executeQuery()) == []
    insert.setString(1, None)
    assert error_of(insert.executeUpdate).getErrorCode() == 515
    insert.setString(1, "after")
    assert insert.executeUpdate() == 1


def test_generated_keys_come_back(connection: Any, table: str) -> None:
    insert = connection.prepareStatement(f"INSERT INTO {table} (Name) VALUES (?)", RETURN_GENERATED_KEYS)
    for expected in ("1", "2"):
        insert.setString(1, "x")
        assert insert.executeUpdate() == 1
        assert rows_of(insert.getGeneratedKeys()) == [(Decimal(expected),)]


def test_a_batch_of_inserts_counts_each_and_names_the_bad_one(connection: Any, table: str) -> None:
    insert = connection.prepareStatement(f"INSERT INTO {table} (Name, Price) VALUES (?, ?)")
    for i in range(50):
        insert.setString(1, f"n{i}")
        insert.setBigDecimal(2, Decimal(i))
        insert.addBatch()
    assert list(insert.executeBatch()) == [1] * 50
    for name in ("good", None, "also good"):
        insert.setString(1, name)
        insert.setBigDecimal(2, None)
        insert.addBatch()
    failed = error_of(insert.executeBatch)
    assert failed.getErrorCode() == 515
    assert query(connection, f"SELECT COUNT(*), SUM(Price) FROM {table} WHERE Name LIKE 'n%'") == [
        (50, Decimal("1225.00"))
    ]


def test_a_batch_is_loaded_in_bulk(jdbc: Jdbc, table: str) -> None:
    connection = jdbc.connect(useBulkCopyForBatchInsert="true")
    insert = connection.prepareStatement(f"INSERT INTO {table} (Name, Price) VALUES (?, ?)")
    for i in range(1000):
        insert.setString(1, f"é{i}")
        insert.setBigDecimal(2, Decimal(i) / 4 if i % 2 else None)
        insert.addBatch()
    assert len(insert.executeBatch()) == 1000
    kept = f"SELECT COUNT(*), COUNT(Price), MAX(Price), MAX(Id) FROM {table} WHERE Name LIKE N'é%'"
    assert query(connection, kept) == [(1000, 500, Decimal("249.75"), 1000)]
    connection.close()


def test_transactions_save_roll_back_and_commit(jdbc: Jdbc, connection: Any, table: str) -> None:
    other = jdbc.connect()
    counted = f"SELECT COUNT(*) FROM {table} WITH (READPAST)"
    connection.setAutoCommit(False)
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'a')")
    here = connection.setSavepoint("here")
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'b')")
    connection.rollback(here)
    assert query(connection, f"SELECT Name, @@TRANCOUNT FROM {table}") == [("a", 1)]
    assert query(other, counted) == [(0,)]
    connection.commit()
    assert query(other, counted) == [(1,)]
    run(connection, f"DELETE FROM {table}")
    connection.rollback()
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'c')")
    connection.setAutoCommit(True)
    assert query(other, counted) == [(2,)]
    assert query(connection, "SELECT @@TRANCOUNT") == [(0,)]
    other.close()


def test_an_error_leaves_the_transaction_open(connection: Any, table: str) -> None:
    connection.setAutoCommit(False)
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'kept')")
    assert error_of(lambda: run(connection, "SELECT 1/0")).getErrorCode() == 8134
    connection.commit()
    assert query(connection, f"SELECT Name FROM {table}") == [("kept",)]


@pytest.mark.parametrize(("level", "number"), [(1, 1), (2, 2), (4, 3), (8, 4), (SNAPSHOT, 5)])
def test_isolation_levels_are_set(connection: Any, level: int, number: int) -> None:
    connection.setTransactionIsolation(level)
    assert connection.getTransactionIsolation() == level
    session = "SELECT transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id = @@SPID"
    assert query(connection, session) == [(number,)]


def test_a_statement_ends_at_its_timeout_and_when_cancelled(connection: Any) -> None:
    slow = connection.createStatement()
    slow.setQueryTimeout(1)
    assert "timed out" in error_of(lambda: slow.execute("WAITFOR DELAY '00:01:00'")).getMessage()
    slow.setQueryTimeout(0)
    timer = threading.Timer(0.5, slow.cancel)
    timer.start()
    assert "cancel" in error_of(lambda: slow.execute("WAITFOR DELAY '00:01:00'")).getMessage()
    timer.join()
    assert query(connection, "SELECT 1") == [(1,)]


def test_a_large_result_may_be_left_unread(connection: Any) -> None:
    statement = connection.createStatement()
    result = statement.executeQuery(f"{MANY} OPTION (MAXRECURSION 0)")
    assert result.next()
    assert result.getInt(1) == 1
    statement.close()
    assert query(connection, "SELECT 2") == [(2,)]


def test_several_results_and_counts_come_one_after_the_other(connection: Any, table: str) -> None:
    statement = connection.createStatement()
    results: list[object] = []
    is_rows = statement.execute(
        f"SELECT 1 AS a; INSERT INTO {table} (Name) VALUES (N'x'), (N'y'); SELECT Name FROM {table}; PRINT 'done'"
    )
    while is_rows or statement.getUpdateCount() != -1:
        results.append(rows_of(statement.getResultSet()) if is_rows else statement.getUpdateCount())
        is_rows = statement.getMoreResults()
    assert results == [[(1,)], 2, [("x",), ("y",)]]
    assert statement.getWarnings().getMessage() == "done"


def test_a_procedure_gives_results_output_parameters_and_a_status(connection: Any) -> None:
    run(
        connection,
        "CREATE OR ALTER PROCEDURE dbo.JdbcProc @x int, @name nvarchar(20) OUTPUT, @sum decimal(10,2) = NULL OUTPUT AS"
        " SELECT @x AS x; SET @name = @name + N'!'; SET @sum = @x / 4.0; RETURN 7",
    )
    call = connection.prepareCall("{? = call dbo.JdbcProc(?, ?, ?)}")
    call.registerOutParameter(1, INTEGER)
    call.setInt(2, 5)
    call.setString(3, "é")
    call.registerOutParameter(3, NVARCHAR)
    call.registerOutParameter(4, DECIMAL, 2)
    for _ in range(3):
        assert rows_of(call.executeQuery()) == [(5,)]
        assert (call.getInt(1), call.getString(3), call.getBigDecimal(4)) == (7, "é!", Decimal("1.25"))
    named = connection.prepareCall("{call dbo.JdbcProc(?, ?, ?)}")
    named.setInt("x", 8)
    named.setString("name", "n")
    named.registerOutParameter("name", NVARCHAR)
    named.registerOutParameter("sum", DECIMAL, 2)
    assert rows_of(named.executeQuery()) == [(8,)]
    assert (named.getString("name"), named.getBigDecimal("sum")) == ("n!", Decimal("2.00"))


def test_an_error_has_number_state_line_and_procedure(connection: Any) -> None:
    run(connection, "CREATE OR ALTER PROCEDURE dbo.JdbcFails AS\nSELECT 1 AS a\nRAISERROR(N'mine', 15, 3)")
    statement = connection.createStatement()

    def fail() -> None:
        statement.execute("\n\nEXEC dbo.JdbcFails")
        statement.getMoreResults()

    error = error_of(fail)
    reported = error.getSQLServerError()
    assert (error.getErrorCode(), error.getMessage()) == (50000, "mine")
    assert (reported.getLineNumber(), reported.getProcedureName()) == (3, "JdbcFails")
    assert (reported.getErrorSeverity(), reported.getErrorState()) == (15, 3)
    missing = error_of(lambda: query(connection, "SELECT * FROM dbo.Missing"))
    assert (missing.getErrorCode(), missing.getSQLState()) == (208, "S0002")


def test_a_prepared_query_reports_its_columns_before_it_runs(connection: Any, table: str) -> None:
    columns = connection.prepareStatement(f"SELECT Id, Name, Price FROM {table} WHERE Id = ?").getMetaData()
    reported = [
        (columns.getColumnName(i), columns.getColumnTypeName(i), columns.getPrecision(i), columns.getScale(i))
        for i in (1, 2, 3)
    ]
    assert reported == [("Id", "int", 10, 0), ("Name", "nvarchar", 20, 0), ("Price", "decimal", 10, 2)]
    assert columns.isAutoIncrement(1)
    assert [columns.isNullable(i) for i in (1, 2, 3)] == [0, 0, 1]


def test_the_number_of_rows_is_limited(connection: Any) -> None:
    statement = connection.createStatement()
    statement.setMaxRows(3)
    assert rows_of(statement.executeQuery(f"{MANY} OPTION (MAXRECURSION 0)")) == [(1,), (2,), (3,)]
    statement.setMaxRows(0)
    assert len(rows_of(statement.executeQuery("SELECT name FROM sys.databases"))) > 3


def test_the_catalog_of_a_connection_changes(connection: Any) -> None:
    connection.setCatalog("master")
    assert (connection.getCatalog(), query(connection, "SELECT DB_NAME()")) == ("master", [("master",)])


def test_a_prepared_statement_reports_its_parameters_before_it_runs(connection: Any, table: str) -> None:
    insert = connection.prepareStatement(f"INSERT INTO {table} (Name, Price) VALUES (?, ?)")
    reported = insert.getParameterMetaData()
    kinds = [(reported.getParameterTypeName(i), reported.getPrecision(i), reported.getScale(i)) for i in (1, 2)]
    assert kinds == [("nvarchar", 20, 0), ("decimal", 10, 2)]


def test_privileges_are_described(connection: Any) -> None:
    run(connection, "CREATE SCHEMA jdbc_d")
    run(connection, "CREATE TABLE jdbc_d.Granted (a int, b int)")
    run(connection, "CREATE USER Jdbc_reader WITHOUT LOGIN")
    run(connection, "GRANT SELECT, UPDATE (b) ON jdbc_d.Granted TO Jdbc_reader")
    facts = connection.getMetaData()
    tables = chosen(facts.getTablePrivileges(None, "jdbc_d", "%"), "TABLE_NAME", "GRANTEE", "PRIVILEGE")
    assert ("Granted", "dbo", "DELETE") in tables
    assert [row for row in tables if row[1] == "Jdbc_reader"] == [("Granted", "Jdbc_reader", "SELECT")]
    columns = chosen(facts.getColumnPrivileges(None, "jdbc_d", "Granted", "%"), "COLUMN_NAME", "GRANTEE", "PRIVILEGE")
    assert [row for row in columns if row[1] == "Jdbc_reader"] == [
        ("a", "Jdbc_reader", "SELECT"),
        ("b", "Jdbc_reader", "SELECT"),
        ("b", "Jdbc_reader", "UPDATE"),
    ]


@pytest.mark.parametrize("call", ["EXEC dbo.of_jdbc ?", "{call dbo.of_jdbc (?)}", "SELECT id, code FROM ? ORDER BY id"])
def test_tables_are_passed_as_parameters(jdbc: Jdbc, connection: Any, call: str) -> None:
    run(connection, "IF TYPE_ID('dbo.JdbcLines') IS NULL EXEC ('CREATE TYPE dbo.JdbcLines AS TABLE "
        "(id int PRIMARY KEY, code nvarchar(5))')")  # fmt: skip
    run(connection, "CREATE OR ALTER PROCEDURE dbo.of_jdbc @l dbo.JdbcLines READONLY AS SELECT id, code FROM @l")
    table = jdbc.session._jvm.com.microsoft.sqlserver.jdbc.SQLServerDataTable()
    table.addColumnMetadata("id", INTEGER)
    table.addColumnMetadata("code", NVARCHAR)
    for row in ((1, "é"), (2, None)):
        values = jdbc.session._sc._gateway.new_array(jdbc.session._jvm.java.lang.Object, 2)
        values[0], values[1] = row
        table.addRow(values)
    statement = connection.prepareCall(call) if call.startswith("{") else connection.prepareStatement(call)
    # Its second execution prepares, its third uses the handle; each reads the table's rows once.
    for _ in range(3):
        statement.setStructured(1, "dbo.JdbcLines", table)
        assert rows_of(statement.executeQuery()) == [(1, "é"), (2, None)]
    statement.close()
