"""The filter of a table: what it may have, the T-SQL that is made of it, and the rows that pass."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from floodmark.core.schema import SourceColumn
from floodmark.core.settings import ComparedWith, FilterColumn
from floodmark.sync.filters import FilterError, compile_filter, parse_filter


@pytest.mark.parametrize(
    ("written", "sql"),
    [
        ("Region='N'", "[Region] = 'N'"),
        ("a != -1.5", "[a] <> -1.5"),
        ("((a > 1)) and (b < 2 OR c is null)", "[a] > 1 AND ([b] < 2 OR [c] IS NULL)"),
        ("a = 1 AND b = 2 OR c = 3", "([a] = 1 AND [b] = 2) OR [c] = 3"),
        ("a = 1 AND (b = 2 AND c = 3)", "[a] = 1 AND ([b] = 2 AND [c] = 3)"),
        ("NOT a = 1 AND b >= 2e3", "NOT ([a] = 1) AND [b] >= 2e3"),
        ("a IS NOT NULL", "NOT ([a] IS NULL)"),
        ("a NOT IN (1, N'x')", "NOT ([a] IN (1, N'x'))"),
        ("a NOT BETWEEN '20260101' AND b", "NOT ([a] BETWEEN '20260101' AND [b])"),
        ("a NOT LIKE N'50!%' ESCAPE '!'", "[a] NOT LIKE N'50!%' ESCAPE '!'"),
        ("[my]]col] = 'it''s' or \"key\" = 0xAb01", "[my]]col] = 'it''s' OR [key] = 0xAb01"),
        ("1 < a", "1 < [a]"),
        ("[a] = '];DROP TABLE x--'", "[a] = '];DROP TABLE x--'"),
    ],
)
def test_filter_is_written_again_in_one_form(written: str, sql: str) -> None:
    assert parse_filter(written).sql == sql
    assert parse_filter(sql) == parse_filter(written)


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("", "not one condition"),
        ("a", r"cannot have a"),
        ("a = 1; DROP TABLE x", "not one condition"),
        ("a = 1 -- x", "no comments"),
        ("a = 1 /* x */", "no comments"),
        ("UPPER(a) = 'X'", r"cannot have UPPER\(a\)"),
        ("a = GETDATE()", r"cannot have (GETDATE\(\)|CURRENT_TIMESTAMP.*)"),
        ("a = b + 1", r"cannot have b \+ 1"),
        ("a IN (SELECT 1)", r"cannot have a IN \(SELECT 1\)"),
        ("EXISTS (SELECT 1)", r"cannot have (EXISTS\(SELECT 1\)|EXISTS \(SELECT 1\))"),
        ("a = (SELECT 1)", r"cannot have \(SELECT 1\)"),
        ("a = ALL (SELECT 1)", r"cannot have ALL \(SELECT 1\)"),
        ("t.a = 1", r"cannot have t\.a: write a column without its table"),
        ("a = @x", "cannot have @x"),
        ("a = ?", r"cannot have \?"),
        ("a COLLATE x = 'a'", "cannot have a COLLATE x"),
        ("a = NULL", "write IS NULL"),
        ("a IN (1, NULL)", "write IS NULL"),
        ("a = TRUE", "no TRUE and FALSE: write 1 or 0"),
        ("a IS 1", "cannot have a IS 1"),
        ("1 = 1", "cannot compare 1 with 1"),
        ("'x' IS NULL", "cannot have 'x'"),
        ("1 IN (a, 2)", r"cannot have 1 IN \(a, 2\)"),
        ("a LIKE b", "cannot have b"),
        ("a LIKE ANY ('x')", "a filter cannot have"),
        ("a ILIKE 'x'", "cannot have a ILIKE 'x'"),
        ("a BETWEEN SYMMETRIC 1 AND 2", "a filter cannot have"),
        ("a = 'x' 'y'", "a filter cannot have"),
        ("CASE WHEN a = 1 THEN 1 END = 1", "a filter cannot have"),
        ("a = CAST('1' AS int)", r"cannot have (CAST\('1' AS INTEGER\)|CAST\('1' AS INT\))"),
        ("a = 1 AND x()", r"cannot have (x\(\)|X\(\))"),
        ("a = 1 UNION SELECT 2", "not one condition"),
    ],
)
def test_part_that_no_filter_has_is_named(written: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        parse_filter(written)


def test_filter_has_the_columns_that_it_reads_with_what_they_are_compared_with() -> None:
    found = parse_filter("a = 1 AND b IN ('x', N'y') AND c LIKE 'x' AND d = 0x01 AND a IS NULL AND a = e").columns
    assert set(found) == {
        FilterColumn("a", ComparedWith.NUMBER),
        FilterColumn("a", ComparedWith.NOTHING),
        FilterColumn("b", ComparedWith.TEXT),
        FilterColumn("c", ComparedWith.PATTERN),
        FilterColumn("d", ComparedWith.BYTES),
        FilterColumn("e", ComparedWith.NOTHING),
    }


def test_long_chain_of_conditions_is_a_filter() -> None:
    assert parse_filter(" OR ".join(f"a = {number}" for number in range(3000))).sql.count(" OR ") == 2999


NAMES = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=8)


@example("--", "")
@example("a/*b", "*/")
@example("a\"b'c", "--")
@given(NAMES, st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12))
def test_names_and_texts_reach_the_server_as_they_are(name: str, text: str) -> None:
    column, literal = f"[{name.replace(']', ']]')}]", "N'" + text.replace("'", "''") + "'"
    found = parse_filter(f"{column} = {literal}")
    assert found.sql == f"{column} = {literal}"
    assert found.columns == (FilterColumn(name, ComparedWith.TEXT),)


# --------------------------------------------------------------------------------------------------------------------
# Evaluated in Python. SQLite evaluates the same text over the same rows, but sets of LIKE and texts of dates.


TYPES = {"A": "int", "B": "decimal", "F": "float", "T": "nvarchar", "U": "nvarchar", "Y": "bit"}


def columns_of(types: Mapping[str, str]) -> dict[str, SourceColumn]:
    return {name: SourceColumn(name, kind, 1, precision=9, scale=2) for name, kind in types.items()}


def drawn_filter(chance: random.Random, depth: int = 3) -> str:
    if depth and chance.random() < 0.7:
        left, right = drawn_filter(chance, depth - 1), drawn_filter(chance, depth - 1)
        return chance.choice((f"({left}) AND ({right})", f"({left}) OR ({right})", f"NOT ({left})"))
    number, other = chance.choice("ABFY"), chance.choice("AB")
    text, compared = chance.choice("TU"), chance.choice(("=", "<>", "<", "<=", ">", ">="))
    numbers = [str(chance.choice((-1, 0, 1, 2, 2.5))) for _ in range(2)]
    texts = [f"'{chance.choice(('', 'a', 'b', 'ab', 'A', 'b ', 'ä'))}'" for _ in range(2)]
    return chance.choice((
        f"{number} {compared} {numbers[0]}",
        f"{numbers[0]} {compared} {number}",
        f"{number} {compared} {other}",
        f"{number} IN ({', '.join(numbers)})",
        f"{number} NOT IN ({', '.join(numbers)})",
        f"{number} BETWEEN {' AND '.join(numbers)}",
        f"{text} {compared} {texts[0]}",
        f"T {compared} U",
        f"{text} IN ({', '.join(texts)})",
        f"{text} BETWEEN {' AND '.join(texts)}",
        f"{text} LIKE '{chance.choice(('a%', '%b', '_', '%', 'a_', ''))}'",
        f"{text} NOT LIKE '{chance.choice(('a%', '_b'))}'",
        f"{chance.choice('ABFTUY')} IS NULL",
        f"{chance.choice('ABFTUY')} IS NOT NULL",
    ))  # fmt: skip


def test_rows_pass_that_pass_in_a_database() -> None:
    chance = random.Random(7)
    rows = [
        tuple(chance.choice((None, *values)) for values in (
            (-1, 0, 1, 2), (Decimal(-1), Decimal(1), Decimal("2.5")), (-1.0, 0.5, 2.5), ("", "a", "ab", "A"),
            ("a", "b", "b ", "ä"), (False, True),
        ))
        for _ in range(60)
    ]  # fmt: skip
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA case_sensitive_like = ON")
        database.execute("CREATE TABLE r (A INT, B NUMERIC, F REAL, T TEXT, U TEXT, Y INT)")
        stored = [tuple(float(value) if isinstance(value, Decimal) else value for value in row) for row in rows]
        database.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?, ?)", stored)
        passed = set()
        for _ in range(800):
            where = parse_filter(drawn_filter(chance))
            passes = compile_filter(where, columns_of(TYPES))
            expected = [bool(found) for (found,) in database.execute(f"SELECT {where.sql} FROM r ORDER BY rowid")]
            assert [passes(dict(zip(TYPES, row, strict=True))) for row in rows] == expected, where.sql
            passed.update(expected)
    assert passed == {True, False}


@pytest.mark.parametrize(
    ("where", "kind", "value", "passes"),
    [
        ("C LIKE '[a-c]%'", "nvarchar", "bit", True),
        ("C LIKE '[^a-c]%'", "nvarchar", "bit", False),
        ("C LIKE '10!%' ESCAPE '!'", "nvarchar", "10%", True),
        ("C LIKE '10!%' ESCAPE '!'", "nvarchar", "100", False),
        ("C LIKE '[%]'", "nvarchar", "%", True),
        ("C LIKE '[]'", "nvarchar", "", False),
        ("C LIKE 'a%'", "nvarchar", "a\nb", True),
        ("C >= '20260131'", "date", date(2026, 1, 31), True),
        ("C < '2026-01-31'", "date", date(2026, 1, 31), False),
        ("C = '2026-01-31 10:00'", "datetime2", datetime(2026, 1, 31, 10), True),
        ("C = 0x0A", "varbinary", b"\n", True),
        (
            "C = 'ABCDEFAB-0000-0000-0000-000000000000'",
            "uniqueidentifier",
            "abcdefab-0000-0000-0000-000000000000",
            True,
        ),
        ("C = 0.1", "float", 0.1, True),
        ("C = 0.1", "decimal", Decimal("0.10"), True),
        ("Other = 1", "int", 1, False),
        ("NOT (Other = 1)", "int", 1, False),
        ("Other IS NULL", "int", 1, True),
    ],
)
def test_values_are_compared_as_their_types(where: str, kind: str, value: object, passes: bool) -> None:
    assert compile_filter(parse_filter(where), columns_of({"C": kind}))({"C": value}) == passes


@pytest.mark.parametrize(
    ("where", "types", "words"),
    [
        ("C = '20261301'", {"C": "date"}, "the filter compares C, which is date, with '20261301'"),
        ("C = 1", {"C": "nvarchar"}, "with 1"),
        ("C = 'a'", {"C": "int"}, "the filter compares C, which is int, with 'a'"),
        ("C = 'a'", {"C": "uniqueidentifier"}, "with 'a'"),
        ("C <> '2026-01-31T10:00Z'", {"C": "datetime2"}, "with '2026-01-31T10:00Z'"),
        ("C < '2026-01-31 10:00+02:00'", {"C": "datetime2"}, "with '2026-01-31 10:00+02:00'"),
        ("C LIKE '[z-a]%'", {"C": "nvarchar"}, "a wrong set: bad character range z-a"),
        ("C LIKE 'a%'", {"C": "int"}, "which is int, with LIKE"),
        ("C > 'ABCDEFAB-0000-0000-0000-000000000000'", {"C": "uniqueidentifier"}, "compares uniqueidentifier with >"),
        ("C = D", {"C": "date", "D": "nvarchar"}, "compares columns of the types date and nvarchar"),
    ],
)
def test_filter_that_cannot_be_evaluated_is_named(where: str, types: dict[str, str], words: str) -> None:
    with pytest.raises(FilterError, match=re.escape(words)):
        compile_filter(parse_filter(where), columns_of(types))
