"""Names of tables as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.schema import TableName


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("dbo.Orders", "dbo", "Orders"),
        ("[dbo].[Orders]", "dbo", "Orders"),
        (" dbo . [Order Details] ", "dbo", "Order Details"),
        ("dbo.Order Details", "dbo", "Order Details"),
        ("dbo.[my.table]", "dbo", "my.table"),
        ("[a.b].[c.d]", "a.b", "c.d"),
        ("dbo.[a]]b]", "dbo", "a]b"),
        ("dbo.[[]", "dbo", "["),
    ],
)
def test_table_name_is_read_as_t_sql_reads_it(text: str, schema: str, name: str) -> None:
    assert TableName.parse(text) == TableName(schema, name)


@pytest.mark.parametrize(
    "text", ["Orders", "a.b.c", "dbo.", ".Orders", "dbo.[]", "dbo.[a]b]", "dbo.[a", "dbo.a]", "", "dbo. "]
)
def test_text_that_is_not_two_names_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a table name: .* \(expected schema\.table\)"):
        TableName.parse(text)


@given(st.text(min_size=1), st.text(min_size=1))
def test_every_name_can_be_read_back_from_its_text(schema: str, name: str) -> None:
    assert TableName.parse(str(TableName(schema, name))) == TableName(schema, name)


def test_text_of_a_plain_name_is_plain() -> None:
    assert str(TableName("dbo", "Order Details")) == "dbo.Order Details"
