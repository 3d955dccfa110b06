"""Queries whose code units of strings are sent as texts, and those where PostgreSQL has to have the bytes."""

from __future__ import annotations

import re

import pytest

from translate_statement import literals, translate

UNITS = "CAST(Note AS varbinary(40))"


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        (f"SELECT OrderID, {UNITS} AS Note FROM dbo.Orders", {1}),
        (f"SELECT {UNITS}, {UNITS} FROM dbo.Orders WHERE {UNITS} > 0x41", {0, 1}),
        (f"SELECT TOP (5) {UNITS} FROM dbo.Orders ORDER BY OrderID", {0}),
        (f"SELECT {UNITS}, CAST(Note AS varbinary(2)) FROM dbo.Orders ORDER BY 1", {1}),
        ("SELECT CONVERT(varbinary(max), Note) FROM dbo.Orders", {0}),
        ("SELECT CAST(N'a' AS varbinary(4))", {0}),
    ],
)
def test_projected_code_units_are_sent_as_texts(query: str, columns: set[int]) -> None:
    made = translate(query)
    assert made.unit_columns == columns
    sent = made.as_sent().sql.partition(" FROM ")[0]
    assert made.sql.partition(" FROM ")[0].count("tsql.to_utf16") - sent.count("tsql.to_utf16") == len(columns)


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT DISTINCT {UNITS} FROM dbo.Orders",
        f"SELECT {UNITS} FROM dbo.Orders GROUP BY {UNITS}",
        f"SELECT {UNITS} FROM dbo.Orders ORDER BY 1",
        f"SELECT {UNITS} AS Units FROM dbo.Orders ORDER BY Units",
        f"SELECT {UNITS} + 0x00 FROM dbo.Orders",
        f"SELECT ISNULL({UNITS}, 0x) FROM dbo.Orders",
        f"SELECT q.b FROM (SELECT {UNITS} AS b FROM dbo.Orders) AS q",
        f"SELECT {UNITS} FROM dbo.Orders UNION ALL SELECT {UNITS} FROM dbo.Orders",
        f"SELECT {UNITS} AS b FROM dbo.Orders FOR XML PATH",
        "SELECT CAST(Note AS binary(40)) FROM dbo.Orders",
        "SELECT CAST(Code AS varbinary(40)) FROM dbo.Orders",
        "SELECT CONVERT(varbinary(40), Note, 2) FROM dbo.Orders",
    ],
)
def test_bytes_that_postgresql_needs_are_made_there(query: str) -> None:
    made = translate(query)
    assert made.unit_columns == frozenset()
    assert made.as_sent() is made


def test_parameters_of_both_forms_are_the_same() -> None:
    # One literal is dropped: nothing equals NULL.
    made = translate(
        "SELECT CAST(CONCAT(Note, N'x') AS varbinary(40)) FROM dbo.Orders WHERE LOWER('a') = NULL OR OrderID = 7"
    )
    assert literals(made) == ["x", "7"]
    for sql in (made.sql, made.as_sent().sql):
        assert sorted(set(re.findall(r"\$\d+", sql))) == ["$1", "$2"]
