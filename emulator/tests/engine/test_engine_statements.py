"""Statements, transactions and their errors, as SQL Server words them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from engine_client import Client
from sqlserver_emulator.assembly.factory import Engine
from sqlserver_emulator.types import TsqlType


def test_rows_come_back_as_they_went_in(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.all_types (id int PRIMARY KEY, b bit, ty tinyint, si smallint, bi bigint, d "
        "decimal(18,2), m money,"
        " f float, r real, n nvarchar(20), nm nvarchar(max), c char(3), dt2 datetime2(7), da date, ti "
        "time(3), g uniqueidentifier,"
        " vb varbinary(max), bn binary(4), rv rowversion)"
    )
    client.run(
        "INSERT INTO dbo.all_types (id, b, ty, si, bi, d, m, f, r, n, nm, c, dt2, da, ti, g, vb, bn) "
        "VALUES (1, 1, 255, -5,"
        " 9223372036854775807, 12.34, 99.1234, 1.5, 2.5, N'zażółć', N'x', 'ab', '2024-02-29 "
        "10:11:12.1234567', '2024-02-29',"
        " '10:11:12.123', '0E984725-C51C-4BF4-9960-E1C80E27ABA0', 0x00FF, 0x0102)"
    )
    (row,) = client.rows("SELECT * FROM dbo.all_types")
    assert row[:9] == (1, 1, 255, -5, 9223372036854775807, Decimal("12.34"), Decimal("99.1234"), 1.5, 2.5)
    assert row[9:12] == ("zażółć", "x", "ab ")
    assert str(row[12]) == "2024-02-29 10:11:12.1234567"
    assert [str(value) for value in row[13:16]] == [
        "2024-02-29",
        "10:11:12.123000",
        "0e984725-c51c-4bf4-9960-e1c80e27aba0",
    ]
    assert row[16:18] == (b"\x00\xff", b"\x01\x02\x00\x00")
    assert isinstance(row[18], bytes)
    assert len(row[18]) == 8


def test_columns_keep_their_declared_types_through_a_subquery(client: Client) -> None:
    client.run("CREATE TABLE dbo.typed (a nvarchar(33), b smallmoney, c datetime)")
    types = client.types("SELECT q.a, q.b, q.c, COUNT(*) OVER () AS n FROM (SELECT a, b, c FROM dbo.typed) AS q")
    assert types == {
        "a": TsqlType("nvarchar", 33),
        "b": TsqlType("smallmoney"),
        "c": TsqlType("datetime"),
        "n": TsqlType("int"),
    }


def test_a_failing_statement_leaves_the_transaction_and_its_rows(client: Client) -> None:
    client.run("CREATE TABLE dbo.kept (id int PRIMARY KEY)")
    outcome = client.attempt(
        "BEGIN TRAN; INSERT INTO dbo.kept VALUES (1); INSERT INTO dbo.kept VALUES (1); INSERT INTO "
        "dbo.kept VALUES (2); COMMIT"
    )
    assert [error.number for error in outcome.errors] == [2627]
    assert client.rows("SELECT id FROM dbo.kept ORDER BY id") == [(1,), (2,)]


def test_a_failing_first_statement_leaves_the_transaction_open(client: Client) -> None:
    client.run("CREATE TABLE dbo.opened (id int)")
    outcome = client.attempt(
        "BEGIN TRAN; SELECT 1/0; INSERT INTO dbo.opened VALUES (1); SELECT @@TRANCOUNT; ROLLBACK; SELECT "
        "COUNT(*) FROM dbo.opened"
    )
    assert [error.number for error in outcome.errors] == [8134]
    assert [result.rows for result in outcome.results[-2:]] == [[(1,)], [(0,)]]


def test_rollback_to_a_savepoint_undoes_what_came_after_it(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.saved (id int); BEGIN TRAN; INSERT INTO dbo.saved VALUES (1); SAVE TRAN here;"
        " INSERT INTO dbo.saved VALUES (2); ROLLBACK TRAN here; INSERT INTO dbo.saved VALUES (3); COMMIT"
    )
    assert client.rows("SELECT id FROM dbo.saved ORDER BY id") == [(1,), (3,)]


def test_uncommitted_rows_are_not_seen_by_others(client: Client, connect: Callable[..., Client]) -> None:
    client.run("CREATE TABLE dbo.hidden (id int); BEGIN TRAN; INSERT INTO dbo.hidden VALUES (1)")
    assert connect().value("SELECT COUNT(*) FROM dbo.hidden") == 0
    client.run("COMMIT")
    assert connect().value("SELECT COUNT(*) FROM dbo.hidden") == 1


def test_errors_carry_sql_servers_numbers_and_texts(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.parent (id int CONSTRAINT pk_parent PRIMARY KEY, code nvarchar(5) NOT NULL "
        "CONSTRAINT uq_code UNIQUE,"
        " n int CONSTRAINT ck_n CHECK (n > 0));"
        "CREATE TABLE dbo.child (id int PRIMARY KEY, parent_id int CONSTRAINT fk_parent REFERENCES dbo.parent (id));"
        "INSERT INTO dbo.parent VALUES (1, N'a', 1); INSERT INTO dbo.child VALUES (1, 1)"
    )
    expected = {
        "INSERT INTO dbo.parent VALUES (1, N'b', 1)": (
            2627,
            "Violation of PRIMARY KEY constraint 'pk_parent'. Cannot insert duplicate key in object 'dbo.parent'. "
            "The duplicate key value is (1).",
        ),
        "INSERT INTO dbo.parent VALUES (2, N'a', 1)": (
            2627,
            "Violation of UNIQUE KEY constraint 'uq_code'. Cannot insert duplicate key in object 'dbo.parent'. "
            "The duplicate key value is (a).",
        ),
        "INSERT INTO dbo.parent (id) VALUES (3)": (
            515,
            "Cannot insert the value NULL into column 'code', table 'statements.dbo.parent'; column does "
            "not allow nulls. "
            "INSERT fails.",
        ),
        "UPDATE dbo.parent SET code = NULL": (
            515,
            "Cannot insert the value NULL into column 'code', table 'statements.dbo.parent'; column does "
            "not allow nulls. "
            "UPDATE fails.",
        ),
        "INSERT INTO dbo.parent VALUES (4, N'too long', 1)": (
            2628,
            "String or binary data would be truncated in table 'statements.dbo.parent', column 'code'. "
            "Truncated value: 'too l'.",
        ),
        "INSERT INTO dbo.parent VALUES (5, N'x', -1)": (
            547,
            'The INSERT statement conflicted with the CHECK constraint "ck_n". The conflict occurred in database '
            '"statements", table "dbo.parent", column \'n\'.',
        ),
        "INSERT INTO dbo.child VALUES (2, 99)": (
            547,
            'The INSERT statement conflicted with the FOREIGN KEY constraint "fk_parent". The conflict occurred in '
            'database "statements", table "dbo.parent", column \'id\'.',
        ),
        "DELETE FROM dbo.parent WHERE id = 1": (
            547,
            'The DELETE statement conflicted with the REFERENCE constraint "fk_parent". The conflict occurred in '
            'database "statements", table "dbo.child", column \'parent_id\'.',
        ),
        "SELECT * FROM dbo.nowhere": (208, "Invalid object name 'dbo.nowhere'."),
        "SELECT nothing FROM dbo.parent": (207, "Invalid column name 'nothing'."),
        "SELECT 1 / 0": (8134, "Divide by zero error encountered."),
    }
    found = {statement: client.error(statement) for statement in expected}
    assert {statement: (error.number, error.message) for statement, error in found.items()} == expected


def test_identity_goes_on_after_a_rollback(client: Client) -> None:
    client.run("CREATE TABLE dbo.counted (id int IDENTITY(10, 5) PRIMARY KEY, x int)")
    client.run("BEGIN TRAN; INSERT INTO dbo.counted (x) VALUES (1); ROLLBACK; INSERT INTO dbo.counted (x) VALUES (2)")
    assert client.rows("SELECT id FROM dbo.counted") == [(15,)]
    assert client.value("SELECT SCOPE_IDENTITY()") == 15


def test_explicit_identity_values_need_identity_insert_and_move_the_counter(client: Client) -> None:
    client.run("CREATE TABLE dbo.given (id int IDENTITY PRIMARY KEY, x int)")
    assert client.error("INSERT INTO dbo.given (id, x) VALUES (50, 1)").number == 544
    client.run("SET IDENTITY_INSERT dbo.given ON; INSERT INTO dbo.given (id, x) VALUES (50, 1)")
    assert client.error("INSERT INTO dbo.given (x) VALUES (2)").number == 545
    client.run("SET IDENTITY_INSERT dbo.given OFF; INSERT INTO dbo.given (x) VALUES (3)")
    assert client.rows("SELECT id FROM dbo.given ORDER BY id") == [(50,), (51,)]


def test_rowversion_grows_with_every_write(client: Client) -> None:
    client.run("CREATE TABLE dbo.versioned (id int, rv rowversion); INSERT INTO dbo.versioned (id) VALUES (1)")
    before = client.value("SELECT rv FROM dbo.versioned")
    client.run("UPDATE dbo.versioned SET id = 1")
    after = client.value("SELECT rv FROM dbo.versioned")
    assert isinstance(before, bytes)
    assert isinstance(after, bytes)
    assert after > before
    assert client.value("SELECT @@DBTS") == after


def test_temp_tables_belong_to_their_session(client: Client, connect: Callable[..., Client]) -> None:
    client.run("CREATE TABLE #mine (id int PRIMARY KEY, n nvarchar(5)); INSERT INTO #mine VALUES (1, N'a')")
    assert client.types("SELECT n FROM #mine") == {"n": TsqlType("nvarchar", 5)}
    assert connect().error("SELECT * FROM #mine").number == 208
    client.session.reset()
    assert client.error("SELECT * FROM #mine").number == 208


def test_a_temp_table_made_in_a_rolled_back_transaction_is_gone(client: Client) -> None:
    client.run("BEGIN TRAN; CREATE TABLE #undone (id int); ROLLBACK")
    assert client.error("SELECT * FROM #undone").number == 208
    client.run("CREATE TABLE #undone (id int)")


def test_select_into_makes_a_table_of_the_querys_types(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.origin (id int NOT NULL, n nvarchar(7)); INSERT INTO dbo.origin VALUES (1, N'a'), (2, N'b')"
    )
    client.run("DECLARE @low int = 1; SELECT id, n, id * 2 AS twice INTO dbo.copied FROM dbo.origin WHERE id > @low")
    assert client.rows("SELECT * FROM dbo.copied") == [(2, "b", 4)]
    assert client.types("SELECT n FROM dbo.copied") == {"n": TsqlType("nvarchar", 7)}


def test_snapshot_isolation_sees_one_moment(client: Client, connect: Callable[..., Client]) -> None:
    client.run("CREATE TABLE dbo.moment (id int)")
    client.run("ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON")
    client.run("SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRAN; SELECT COUNT(*) FROM dbo.moment")
    connect().run("INSERT INTO dbo.moment VALUES (1)")
    assert client.value("SELECT COUNT(*) FROM dbo.moment") == 0
    client.run("COMMIT")
    assert client.value("SELECT COUNT(*) FROM dbo.moment") == 1


def test_lock_timeout_ends_a_waiting_statement(client: Client, connect: Callable[..., Client]) -> None:
    client.run("CREATE TABLE dbo.locked (id int PRIMARY KEY, x int); INSERT INTO dbo.locked VALUES (1, 1)")
    client.run("BEGIN TRAN; UPDATE dbo.locked SET x = 2")
    waiting = connect()
    waiting.run("SET LOCK_TIMEOUT 50")
    assert waiting.error("UPDATE dbo.locked SET x = 3").number == 1222
    client.run("ROLLBACK")


def test_a_deadlock_ends_the_victims_transaction(client: Client, connect: Callable[..., Client]) -> None:
    client.run("CREATE TABLE dbo.dead (id int PRIMARY KEY, x int); INSERT INTO dbo.dead VALUES (1, 0), (2, 0)")
    other = connect()
    client.run("BEGIN TRAN; UPDATE dbo.dead SET x = 1 WHERE id = 1")
    other.run("BEGIN TRAN; UPDATE dbo.dead SET x = 2 WHERE id = 2")
    errors = _run_together(
        lambda: client.attempt("UPDATE dbo.dead SET x = 1 WHERE id = 2").errors,
        lambda: other.attempt("UPDATE dbo.dead SET x = 2 WHERE id = 1").errors,
    )
    assert [error.number for error in errors] == [1205]
    assert sorted(c.value("SELECT @@TRANCOUNT") for c in (client, other)) == [0, 1]  # type: ignore[type-var]
    for session in (client, other):
        session.run("IF @@TRANCOUNT > 0 ROLLBACK")


@pytest.mark.parametrize(
    ("statement", "result"),
    [
        ("SELECT @s = @s + Name FROM dbo.listed ORDER BY Name DESC", ("cba", 0)),
        ("SELECT @s += Name + N',' FROM dbo.listed ORDER BY Id", ("c,a,b,", 0)),
        ("SELECT @s = @s + Name FROM dbo.listed WHERE Id > 9", ("", 0)),
        ("SELECT @i += 1, @s = @s + Name + CAST(@i AS nvarchar(9)) FROM dbo.listed ORDER BY Id", ("c1a2b3", 3)),
        ("SELECT @i = Id, @s = CAST(@i + 1 AS nvarchar(9)) FROM dbo.listed ORDER BY Id", ("4", 3)),
    ],
)
def test_select_assigns_from_left_to_right_and_row_after_row(
    client: Client, statement: str, result: tuple[str, int]
) -> None:
    client.run("DROP TABLE IF EXISTS dbo.listed; CREATE TABLE dbo.listed (Id int, Name nvarchar(9))")
    client.run("INSERT INTO dbo.listed VALUES (1, N'c'), (2, N'a'), (3, N'b')")
    assert client.rows(f"DECLARE @s nvarchar(100) = N'', @i int = 0; {statement}; SELECT @s, @i") == [result]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO dbo.lined VALUES (1), (1)",
        "SELECT 1/0",
        "IF 1/0 = 1 PRINT 'x'",
        "THROW 50001, 'x', 1",
        "CREATE TABLE dbo.lined (id int)",
        "EXEC('\n\nSELECT 1/0')",
    ],
)
def test_error_line_in_a_catch_block_is_the_failing_statements(client: Client, statement: str) -> None:
    client.run("DROP TABLE IF EXISTS dbo.lined; CREATE TABLE dbo.lined (id int PRIMARY KEY)")
    batch = f"BEGIN TRY\n  PRINT 'x';\n  {statement}\nEND TRY\nBEGIN CATCH SELECT ERROR_LINE() END CATCH"
    assert client.run(batch).results[-1].rows == [(3,)]


@pytest.mark.parametrize("transaction", ["", "BEGIN TRAN; INSERT INTO dbo.noted VALUES (1)"])
def test_a_query_used_before_reads_a_column_retyped_elsewhere(
    client: Client, engine: Engine, database: str, transaction: str
) -> None:
    """A capture job retypes so: in another process, whose report of it comes later than the next query."""
    client.run("DROP TABLE IF EXISTS dbo.retyped, dbo.noted")
    client.run("CREATE TABLE dbo.retyped (x int); CREATE TABLE dbo.noted (id int); INSERT INTO dbo.retyped VALUES (7)")
    for _ in range(3):
        assert client.rows("SELECT * FROM dbo.retyped") == [(7,)]
    client.run(transaction)
    elsewhere = engine.engine_session(database)
    elsewhere.fetch_all(f'ALTER TABLE "{database}.dbo".retyped ALTER COLUMN x TYPE bigint')
    elsewhere.close()
    assert client.rows("SELECT * FROM dbo.retyped") == [(7,)]
    client.run("IF @@TRANCOUNT > 0 COMMIT")
    assert client.value("SELECT COUNT(*) FROM dbo.noted") == bool(transaction)


def _run_together(*actions: Callable[[], list[object]]) -> list[object]:
    with ThreadPoolExecutor(len(actions)) as pool:
        return [error for found in pool.map(lambda action: action(), actions) for error in found]
