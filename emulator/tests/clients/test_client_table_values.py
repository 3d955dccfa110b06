"""Table-valued parameters of the drivers that send them: pyodbc (msodbcsql) and python-tds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from client_body import DATABASE
from drivers import DRIVERS
from emulator_process import Emulator

ROWS = [(1, "a", Decimal("1.50")), (2, "bé", None)]
OBJECTS = """
IF TYPE_ID('dbo.Lines') IS NULL BEGIN
    EXEC ('CREATE TYPE dbo.Lines AS TABLE (id int PRIMARY KEY, code nvarchar(5) NOT NULL, amount decimal(9, 2) NULL)')
    EXEC ('CREATE TYPE dbo.Numbered AS TABLE (n int IDENTITY, code nvarchar(5), amount int DEFAULT 7)')
    EXEC ('CREATE TYPE dbo.Others AS TABLE (id int)')
    EXEC ('CREATE TYPE dbo.Derived AS TABLE (id int, twice AS id * 2, v rowversion)')
    EXEC ('CREATE PROCEDURE dbo.total @lines dbo.Lines READONLY, @least int = 0 AS
        SELECT id, code, amount FROM @lines WHERE id >= @least ORDER BY id')
    EXEC ('CREATE PROCEDURE dbo.numbered_rows @rows dbo.Numbered READONLY AS
        SELECT n, code, amount, SCOPE_IDENTITY() FROM @rows ORDER BY n')
    EXEC ('CREATE PROCEDURE dbo.derived_rows @rows dbo.Derived READONLY AS SELECT id, twice FROM @rows')
    EXEC ('CREATE PROCEDURE dbo.changes_rows @lines dbo.Lines READONLY AS DELETE @lines')
    EXEC ('CREATE PROCEDURE dbo.passes_on @lines dbo.Lines READONLY AS BEGIN TRAN ROLLBACK EXEC dbo.total @lines, 2')
END"""


@pytest.fixture
def objects(server: Emulator) -> Emulator:
    with contextlib.closing(server.connect_pymssql(DATABASE, autocommit=True)) as admin:
        admin.cursor().execute(OBJECTS)
    return server


@pytest.fixture
def tds(objects: Emulator) -> Iterator[Any]:
    with contextlib.closing(DRIVERS["python-tds"].connect(objects, DATABASE, autocommit=True)) as connection:
        yield connection.cursor()


@pytest.fixture
def odbc(objects: Emulator) -> Iterator[Any]:
    if reason := DRIVERS["pyodbc"].why_not():
        pytest.skip(reason)
    with contextlib.closing(DRIVERS["pyodbc"].connect(objects, DATABASE, autocommit=True)) as connection:
        yield connection.cursor()


def table(rows: Sequence[tuple[object, ...]] | None, name: str = "dbo.Lines", columns: Any = None) -> Any:
    import pytds

    return pytds.TableValuedParam(type_name=name, columns=columns, rows=rows)


def binary(value: object) -> object:
    import pytds

    return pytds.Binary(value)


def column(*, is_default: bool = False) -> Any:
    import pytds

    return pytds.Column(type=pytds.tds_types.IntType(), flags=0x0200 if is_default else 1)


def called(cursor: Any, procedure: str, *arguments: object) -> list[tuple[object, ...]]:
    cursor.callproc(procedure, arguments)
    return [tuple(row) for row in cursor.fetchall()]


def failed(cursor: Any, procedure: str, arguments: Any) -> tuple[int, str]:
    with pytest.raises(Exception, match=r"\w") as caught:
        cursor.callproc(procedure, arguments)
    # The connection goes on.
    cursor.execute("SELECT 1")
    assert [tuple(row) for row in cursor.fetchall()] == [(1,)]
    number = DRIVERS["python-tds"].number(caught.value)
    assert number is not None
    return number, str(caught.value)


@pytest.mark.parametrize("name", ["dbo.Lines", "Lines", "DBO.lines", ""])
def test_python_tds_passes_tables_to_procedures(tds: Any, name: str) -> None:
    assert called(tds, "dbo.total", table(ROWS, name)) == ROWS
    assert called(tds, "dbo.total", table(ROWS, name), 2) == ROWS[1:]
    tds.callproc("total", {"@least": 2, "@lines": table(ROWS, name)})
    assert [tuple(row) for row in tds.fetchall()] == ROWS[1:]


def test_python_tds_passes_tables_to_texts(tds: Any) -> None:
    query = "SELECT a.id, b.code FROM %s a JOIN %s b ON b.id = a.id + 1"
    tds.execute(query, (table(ROWS), table([(2, "other", Decimal(1))])))
    assert [tuple(row) for row in tds.fetchall()] == [(1, "other")]


def test_python_tds_passes_a_table_that_is_not_given_as_an_empty_one(tds: Any) -> None:
    import pytds

    assert called(tds, "dbo.total", pytds.default) == []
    assert failed(tds, "dbo.total", (table(None),))[0] == 8060


def test_many_rows_of_a_table_arrive(tds: Any) -> None:
    rows = [(number, "x", Decimal(number) + Decimal("1000.25")) for number in range(5000)]
    assert called(tds, "dbo.total", table(rows), 4998) == rows[4998:]


def test_a_table_is_read_only_and_gone_after_the_call(tds: Any) -> None:
    assert failed(tds, "dbo.changes_rows", (table(ROWS),))[0] == 10700
    for _ in range(2):
        assert called(tds, "dbo.passes_on", table(ROWS)) == ROWS[1:]
    tds.execute("SELECT COUNT(*) FROM tempdb.sys.tables WHERE name LIKE '%lines%'")
    assert tuple(tds.fetchone()) == (0,)


def test_columns_with_their_default_and_identities_are_filled(tds: Any) -> None:
    columns = [column(is_default=True), column(), column(is_default=True)]
    rows: list[tuple[object, ...]] = [(0, 5, 0), (0, 6, 0)]
    expected = [(1, "5", 7, None), (2, "6", 7, None)]
    assert called(tds, "dbo.numbered_rows", table(rows, "dbo.Numbered", columns)) == expected
    # Drivers that cannot send a default send a NULL for an identity.
    rows = [(None, 5, 1), (None, 6, None)]
    expected = [(1, "5", 1, None), (2, "6", None, None)]
    assert called(tds, "dbo.numbered_rows", table(rows, "dbo.Numbered", [column()] * 3)) == expected
    assert failed(tds, "dbo.numbered_rows", (table([(1, 2, 3)], "dbo.Numbered", [column()] * 3),))[0] == 1077
    only_defaults = [column(is_default=True)] * 3
    rows = [(0, 0, 0)] * 2
    expected = [(1, None, 7, None), (2, None, 7, None)]
    assert called(tds, "dbo.numbered_rows", table(rows, "dbo.Numbered", only_defaults)) == expected


def test_columns_that_the_server_computes_are_not_sent(tds: Any) -> None:
    default = column(is_default=True)
    assert called(tds, "dbo.derived_rows", table([(4, 0, 0)], "dbo.Derived", [column(), default, default])) == [(4, 8)]
    computed = failed(tds, "dbo.derived_rows", (table([(4, 8, 0)], "dbo.Derived", [column(), column(), default]),))
    assert computed[0] == 49999
    version = failed(tds, "dbo.derived_rows", (table([(4, 0, 0)], "dbo.Derived", [column(), default, column()]),))
    assert version[0] == 8052


@pytest.mark.parametrize(
    ("rows", "reason", "shown"),
    [
        ([(1, "abcdefgh", 1)], "String or binary data would be truncated", "2628, state: 1"),
        ([(1, None, 1)], "Cannot insert the value NULL into column 'code', table '@lines'", "515, state: 2"),
        ([(1, "a", 1), (1, "b", 1)], "Violation of PRIMARY KEY constraint", "2627, state: 1"),
        ([("x", "a", 1)], "Conversion failed when converting the nvarchar value 'x' to data type int", "245, state: 1"),
    ],
)
def test_rows_that_do_not_conform_are_refused_with_the_reason(tds: Any, rows: Any, reason: str, shown: str) -> None:
    number, message = failed(tds, "dbo.total", (table(rows),))
    assert number == 8062
    assert reason in message
    assert "The data for the table-valued parameter 1 doesn't conform to the table type of the parameter. " in message
    assert f"SQL Server error is: {shown}" in message
    assert failed(tds, "dbo.total", {"@lines": table(rows)})[0] == 8061


def test_tables_that_do_not_fit_a_call_are_refused(tds: Any) -> None:
    number, message = failed(tds, "dbo.total", (table([(1, "a")]),))
    assert number == 500
    assert "with 2 column(s) where the corresponding user-defined table type requires 3 column(s)" in message
    number, message = failed(tds, "dbo.total", (table([(1,)], "dbo.Others"),))
    assert (number, "Others is incompatible with Lines" in message) == (206, True)
    number, message = failed(tds, "dbo.total", (table(ROWS, "dbo.Missing"),))
    assert (number, "parameter, or variable #1: Cannot find data type dbo.Missing." in message) == (2715, True)
    number, message = failed(tds, "dbo.total", (table(ROWS), table(ROWS)))
    assert (number, "Lines is incompatible with int" in message) == (206, True)
    assert failed(tds, "dbo.total", (1,))[0] == 206
    with pytest.raises(Exception, match='parameter "@P1", to a parameterized string has no table type defined'):
        tds.execute("SELECT * FROM %s", (table(ROWS, ""),))


def test_system_procedures_take_no_tables(tds: Any) -> None:
    for procedure in ("sp_help", "sp_executesql", "sp_execute", "sp_cursorfetch", "sp_cursoropen", "sp_unprepare"):
        assert failed(tds, procedure, (table(ROWS),))[0] in (201, 206, 214, 8179, 16902, 16909), procedure


def test_server_cursors_are_opened_over_tables(tds: Any) -> None:
    query, declared = "SELECT id FROM @t ORDER BY id", "@t dbo.Lines READONLY"
    # PARAMETERIZED_STMT with AUTO_FETCH and STATIC: rows come with the opening, each with its status.
    assert called(tds, "sp_cursoropen", 0, query, 0x3008, 1, 10, declared, table(ROWS)) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("call", ["{CALL dbo.total (?)}", "EXEC dbo.total ?", "EXEC dbo.total @lines = ?"])
def test_odbc_passes_tables_to_procedures(odbc: Any, call: str) -> None:
    for _ in range(2):
        assert [tuple(row) for row in odbc.execute(call, (ROWS,)).fetchall()] == ROWS
    assert odbc.execute(call, ([],)).fetchall() == []


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_call_that_is_cancelled_leaves_no_table(odbc: Any, in_transaction: bool) -> None:
    odbc.execute("CREATE OR ALTER PROCEDURE dbo.waits @lines dbo.Lines READONLY, @seconds char(8) AS "
        "WAITFOR DELAY @seconds SELECT id, code, amount FROM @lines")  # fmt: skip
    odbc.connection.autocommit = not in_transaction
    odbc.connection.timeout = 1
    cursor = odbc.connection.cursor()
    with pytest.raises(Exception, match="timeout"):
        cursor.execute("{CALL dbo.waits (?, ?)}", (ROWS, "00:00:30"))
    for _ in range(2):
        found = odbc.execute("{CALL dbo.waits (?, ?)}", (ROWS, "00:00:00")).fetchall()
        assert [tuple(row) for row in found] == ROWS


def test_values_of_every_kind_arrive(tds: Any, odbc: Any) -> None:
    at, day, key = datetime(2024, 2, 29, 23, 59, 58, 123456), date(1, 1, 1), UUID(int=7)
    row = (True, 2**62, Decimal("-1.25"), 0.5, "é" * 5000, b"\0\xff" * 5000, day, time(1, 2, 3), at, key)
    texts = ["flag bit", "big bigint", "price money", "ratio real", "words nvarchar(max)", "data varbinary(max)"]
    texts += ["day date", "hour time(6)", "at datetime2", "guid uniqueidentifier"]
    tds.execute(f"IF TYPE_ID('dbo.Kinds') IS NULL EXEC ('CREATE TYPE dbo.Kinds AS TABLE ({', '.join(texts)})')")
    tds.execute("CREATE OR ALTER PROCEDURE dbo.kinds_of @k dbo.Kinds READONLY AS SELECT * FROM @k")
    nulls = (None,) * len(row)
    assert [tuple(found) for found in odbc.execute("{CALL dbo.kinds_of (?)}", ([row, nulls],)).fetchall()] == [
        row,
        nulls,
    ]
    (found,) = called(tds, "dbo.kinds_of", table([(*row[:5], binary(row[5]), *row[6:])], "dbo.Kinds"))
    assert (*found[:5], bytes(found[5]), *found[6:]) == row  # type: ignore[arg-type]


def test_odbc_passes_tables_to_texts(odbc: Any) -> None:
    named: list[object] = ["Lines", "dbo", *ROWS]
    rows = odbc.execute("SELECT id FROM ? WHERE id < ?", (named, 2)).fetchall()
    assert [tuple(row) for row in rows] == [(1,)]


def test_odbc_describes_a_parameter_that_is_a_table(odbc: Any) -> None:
    (lines,) = [row for row in odbc.procedureColumns("total") if row.column_name == "@lines"]
    assert (lines.data_type, lines.type_name, lines.ss_type_schema_name) == (-153, "Lines", "dbo")
