"""Effects of translated statements on PostgreSQL, against those of SQL Server (its documentation)."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from sqlserver_emulator import precise
from sqlserver_emulator.engine.translation import LiteralParameter
from sqlserver_emulator.engine.values import bind

if TYPE_CHECKING:
    from translate_server import Server

pytest_plugins = ("translate_server",)

_DAY = datetime.date(2024, 1, 2)
_MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5)


def test_insert_converts_every_type_as_it_is_stored(server: Server) -> None:
    server.run(
        "INSERT INTO types (i, bt, ti, mo, de, da, tm, d2, dt, sd, dto, nv, ch, bn, vb, ug) VALUES"
        " (1, 5, 255, 1.23456, 1.23456, '2024-01-02', '03:04:05.1234567', '2024-01-02 03:04:05.1234567',"
        " '2024-01-02 03:04:05.678', '2024-01-02 03:04:31',"
        " '2024-01-02 03:04:05 +02:00', N'é', 'ab', 0x01, 0x0102, '6F9619FF-8B86-D011-B42D-00C04FC964FF')"
    )
    row = server.run("SELECT bt, ti, mo, de, da, tm, d2, dt, sd, CAST(dto AS varchar(40)), nv, ch, bn, vb FROM types")[
        0
    ]
    assert row == (
        1,
        255,
        Decimal("1.2346"),
        Decimal("1.2346"),
        _DAY,
        precise.time_of(precise.time_ticks(_MOMENT) + 1_234_567),
        precise.datetime_of(precise.ticks(_MOMENT) + 1_234_567),
        _MOMENT.replace(microsecond=677000),
        datetime.datetime(2024, 1, 2, 3, 5),
        "2024-01-02 03:04:05.0000000 +02:00",
        "é",
        "ab    ",
        b"\x01\x00\x00\x00",
        b"\x01\x02",
    )


def test_insert_of_many_rows_keeps_every_value(server: Server) -> None:
    rows = [(i, f"{i}'\\\"é" if i % 3 else None, Decimal("-1.5") * i) for i in range(1, 1001)]
    values = ", ".join(f"({a}, {_national(b)}, {c})" for a, b, c in rows)
    assert server.run(f"INSERT INTO t (a, b, c) VALUES {values}") == [(1000,)]
    assert server.run("SELECT a, b, c FROM t ORDER BY a") == rows


def _national(text: str | None) -> str:
    return "NULL" if text is None else "N'" + text.replace("'", "''") + "'"


def test_insert_whose_rows_differ_in_form_loses_none(server: Server) -> None:
    assert server.run("INSERT INTO t (d) VALUES ('2024-01-01'), (NULL), (GETDATE())") == [(3,)]
    assert server.run("INSERT INTO t (a) VALUES (1), (1 + 1), (@p)", p=("int", 3)) == [(3,)]
    assert server.run("INSERT INTO t (a) VALUES (1), (DEFAULT)") == [(2,)]


def test_output_returns_the_images_of_the_row(server: Server) -> None:
    assert server.run("INSERT INTO t (a, b) OUTPUT inserted.a, inserted.b VALUES (1, N'x'), (2, N'y')") == [
        (1, "x"),
        (2, "y"),
    ]
    assert server.run("UPDATE t SET b = b + '!' OUTPUT deleted.b, inserted.b WHERE a = 1") == [("x", "x!")]
    assert server.run("DELETE TOP (1) FROM t OUTPUT deleted.a WHERE a = 2") == [(2,)]
    assert server.run("DELETE t OUTPUT deleted.a INTO Customers (CustomerID) FROM t WHERE 1 = 0") == [(0,)]


def test_update_with_joins_changes_the_joined_rows(server: Server) -> None:
    server.run("INSERT INTO Customers VALUES (1, N'one', NULL), (2, N'two', NULL)")
    server.run("INSERT INTO t (a) VALUES (1), (2), (3)")
    server.run("UPDATE x SET x.b = c.Name FROM t x JOIN Customers c ON c.CustomerID = x.a")
    server.run("UPDATE x SET x.e = 9 FROM t AS x LEFT JOIN Customers c ON c.CustomerID = x.a WHERE c.Name IS NULL")
    assert server.run("SELECT a, b, e FROM t ORDER BY a") == [(1, "one", None), (2, "two", None), (3, None, 9)]
    assert server.run("DELETE x FROM t x LEFT JOIN Customers c ON c.CustomerID = x.a WHERE c.CustomerID IS NULL") == [
        (1,)
    ]


def test_update_assigns_variables_before_and_after(server: Server) -> None:
    server.run("INSERT INTO t (a, b) VALUES (1, N'x')")
    assert server.run("UPDATE t SET @o = b, b = b + 'y' WHERE a = 1", o=("nvarchar(9)", None)) == [("x",)]
    assert server.run("UPDATE t SET @n = b = b + 'z' WHERE a = 1", n=("nvarchar(9)", None)) == [("xyz",)]


def test_merge_inserts_updates_and_deletes(server: Server) -> None:
    server.run("INSERT INTO Customers VALUES (1, N'one', NULL), (3, N'three', NULL)")
    rows = server.run(
        "MERGE INTO Customers WITH (HOLDLOCK) AS t"
        " USING (VALUES (1, N'uno'), (2, N'dos')) AS s (id, name) ON t.CustomerID = s.id"
        " WHEN MATCHED THEN UPDATE SET t.Name = s.name"
        " WHEN NOT MATCHED THEN INSERT (CustomerID, Name) VALUES (s.id, s.name)"
        " WHEN NOT MATCHED BY SOURCE THEN DELETE OUTPUT $action, inserted.Name, deleted.Name;"
    )
    assert sorted(map(str, rows)) == sorted(
        map(str, [("UPDATE", "uno", "one"), ("INSERT", "dos", None), ("DELETE", None, "three")])
    )


def test_select_into_variables_goes_row_after_row(server: Server) -> None:
    server.run("INSERT INTO t (a) VALUES (3), (1), (2)")
    rows = server.run(
        "SELECT @s = COALESCE(@s + N',', N'') + CAST(a AS nvarchar(9)) FROM t ORDER BY a", s=("nvarchar(99)", None)
    )
    assert rows[-1] == ("1,2,3",)


def test_nulls_sort_first_and_are_last_in_descending_order(server: Server) -> None:
    server.run("INSERT INTO t (a) VALUES (2), (NULL), (1)")
    assert server.run("SELECT a FROM t ORDER BY a") == [(None,), (1,), (2,)]
    assert server.run("SELECT a FROM t ORDER BY a DESC") == [(2,), (1,), (None,)]
    assert server.run("SELECT TOP (1) a AS x FROM t ORDER BY x DESC") == [(2,)]


def test_group_by_an_expression_with_a_literal(server: Server) -> None:
    server.run("INSERT INTO t (a) VALUES (1), (2), (3)")
    assert server.run("SELECT a % 2, COUNT(*) FROM t GROUP BY a % 2 ORDER BY a % 2") == [(0, 1), (1, 2)]
    assert server.run("SELECT DISTINCT a / 2 AS h FROM t ORDER BY a / 2") == [(0,), (1,)]


def test_aggregates_have_the_types_of_their_arguments(server: Server) -> None:
    server.run("INSERT INTO t (a, c, e, b) VALUES (1, 1.5, 10, 'x'), (2, 2, 20, 'y')")
    names = "STRING_AGG(b, '-') WITHIN GROUP (ORDER BY b DESC)"
    row = server.run(f"SELECT COUNT(*), SUM(a), AVG(a), SUM(c), AVG(c), SUM(e), {names} FROM t")[0]
    assert row == (2, 3, 1, Decimal("3.500"), Decimal("1.750000"), 30, "y-x")
    assert [type(v) for v in row[:3]] == [int, int, int]
    assert server.run("SELECT CHECKSUM_AGG(a), MAX(b), COUNT_BIG(DISTINCT a) FROM t") == [(3, "y", 2)]


def test_recursive_common_table_counts(server: Server) -> None:
    anchor, step = "SELECT 1, CAST('a' AS varchar(9))", "SELECT n + 1, path + 'b' FROM r WHERE n < 3"
    sql = f"WITH r (n, path) AS ({anchor} UNION ALL {step}) SELECT * FROM r"
    assert server.run(sql) == [(1, "a"), (2, "ab"), (3, "abb")]


def test_apply_and_values_tables(server: Server) -> None:
    sql = (
        "SELECT v.x, y.twice, s.value FROM (VALUES (1, 'a,b'), (2, 'c')) AS v (x, list)"
        " CROSS APPLY (SELECT v.x * 2 AS twice) AS y CROSS APPLY STRING_SPLIT(v.list, ',') AS s"
        " WHERE v.x >= 1 ORDER BY v.x, s.value"
    )
    assert server.run(sql) == [(1, 2, "a"), (1, 2, "b"), (2, 4, "c")]


def test_inline_function_is_expanded_with_its_arguments(server: Server) -> None:
    server.run(
        "INSERT INTO cdc.dbo_Orders_CT (__$start_lsn, __$seqval, __$operation, OrderID) VALUES (0x05, 0x06, 2, 7)"
    )
    changes = "SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_orders(@from, 0xFF, N'all')"
    sql = f"SELECT OrderID FROM ({changes}) AS q WHERE 1 = 1"
    assert server.run(sql, **{"from": ("binary(10)", b"\x00" * 10)}) == [(7,)]


def test_union_brings_columns_to_one_type(server: Server) -> None:
    assert server.run("SELECT 1 AS a UNION ALL SELECT 2.5 UNION ALL SELECT NULL ORDER BY a DESC") == [
        (Decimal("2.5"),),
        (Decimal("1.0"),),
        (None,),
    ]
    assert set(server.run("SELECT NULL UNION SELECT 'abc'")) == {("abc",), (None,)}


@pytest.mark.parametrize("collation", ["", " COLLATE Latin1_General_BIN2"])
@pytest.mark.parametrize(
    "condition", ["City = 'Oslo '", "City > 'Oslo'", "City IN ('Oslo', 'Bergen')", "'Oslo' <= City"]
)
def test_comparison_that_ignores_blanks_uses_an_index(server: Server, condition: str, collation: str) -> None:
    key = '"City"' if collation else '(tsql.key_ci_as("City"))'
    server.connection.execute(f'CREATE INDEX ON "Shop.dbo"."Customers" ({key})'.encode())
    server.connection.execute("SET LOCAL enable_seqscan = off")
    translated = server.translate(
        f"SELECT CustomerID FROM Customers WHERE {condition.replace('City', 'City' + collation)}", {}
    )
    values = [p.value for p in translated.parameters if isinstance(p, LiteralParameter)]
    plan = server.connection.execute(f"EXPLAIN {bind.inline(translated.sql, values)}".encode()).fetchall()
    assert "Index Cond" in str(plan)
