"""INSERT BULK as drivers write it: table, columns with their types, options."""

from __future__ import annotations

import pytest

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax.parsing.batch import parse_batch
from sqlserver_emulator.syntax.statements import InsertBulk, Name
from sqlserver_emulator.types import TsqlType


def parse(text: str) -> InsertBulk:
    [statement] = parse_batch(text).statements
    assert isinstance(statement, InsertBulk)
    return statement


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("insert bulk dbo.t ([a] INT)", Name("t", "dbo")),
        ("INSERT BULK [other db].[dbo].[a table] ([a] int)", Name("a table", "dbo", "other db")),
        ("insert bulk #t (a int)", Name("#t")),
    ],
)
def test_the_table_is_named_in_one_to_three_parts(text: str, table: Name) -> None:
    assert parse(text).table == table


def test_columns_have_the_types_that_come() -> None:
    text = "insert bulk t ([a] nvarchar(10) COLLATE Latin1_General_100_BIN2, [b] decimal(10, 2) NULL, [c] varchar(max))"
    assert parse(text).columns == (
        ("a", TsqlType("nvarchar", 10)),
        ("b", TsqlType("decimal", precision=10, scale=2)),
        ("c", TsqlType("varchar", -1)),
    )


def test_options_are_kept_or_passed_over() -> None:
    text = "insert bulk t (a int) with (TABLOCK, KEEP_NULLS, ROWS_PER_BATCH = 500, ORDER (a ASC), FIRE_TRIGGERS)"
    assert parse(text).options == {"TABLOCK", "KEEP_NULLS", "ROWS_PER_BATCH", "ORDER", "FIRE_TRIGGERS"}


@pytest.mark.parametrize(
    "text",
    [
        "insert bulk",
        "insert bulk t (a)",
        "insert bulk t (a int",
        "insert bulk t (a int) with (NO_SUCH)",
        "insert bulk t (a int) with (ROWS_PER_BATCH = x)",
    ],
)
def test_anything_else_is_a_syntax_error(text: str) -> None:
    with pytest.raises(SqlServerError) as caught:
        parse(text)
    assert caught.value.number in (102, 156)
