"""Names and literals on their way into PostgreSQL."""

from __future__ import annotations

import datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.engine import names
from sqlserver_emulator.engine.values import bind


def test_short_names_stay_as_they_are() -> None:
    assert names.postgres_name("Orders") == "Orders"
    assert names.postgres_schema("Shop", "dbo") == "Shop.dbo"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=128))
def test_names_fit_postgresql(name: str) -> None:
    assert len(names.postgres_name(name).encode()) <= 63


def test_long_names_that_differ_at_their_ends_stay_different() -> None:
    assert names.postgres_name("x" * 100 + "a") != names.postgres_name("x" * 100 + "b")


def test_a_dot_in_a_name_cannot_be_taken_for_the_separator() -> None:
    assert names.postgres_schema("a.b", "c") != names.postgres_schema("a", "b.c")


def test_inline_leaves_quoted_text_alone() -> None:
    sql = """SELECT $1, '$1', "$2" FROM t WHERE a = $2 AND b = $12"""
    values: list[object] = [f"v{i}" for i in range(1, 13)]
    assert bind.inline(sql, values) == """SELECT 'v1', '$1', "$2" FROM t WHERE a = 'v2' AND b = 'v12'"""


def test_values_become_what_postgresql_reads() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=-5))
    values = {
        True: "1",
        12: "12",
        Decimal("1E+3"): "1000",
        b"\x00\xff": "\\x00ff",
        datetime.datetime(2024, 1, 2, 3, 4, 5): "2024-01-02 03:04:05",
        datetime.datetime(2024, 1, 2, 22, 0, tzinfo=zone): "(638398476000000000,-300)",
        datetime.date(2024, 1, 2): "2024-01-02",
    }
    assert {value: bind.to_text(value) for value in values} == values
    assert bind.to_literal("it's") == "'it''s'"
    assert bind.to_literal(None) == "NULL"
