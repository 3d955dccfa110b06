"""The types of a key that may be hashed."""

from __future__ import annotations

import pytest

from floodmark.core.columns import why_not_of_table
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import ColumnSettings, Mask, TableSettings

NAME = TableName("dbo", "People")


def why(type_name: str, *, declared: bool) -> str:
    key = ("Code",)
    settings = TableSettings(NAME, NAME, key=key if declared else (), columns=(ColumnSettings("Code", mask=Mask.HASH),))
    return why_not_of_table(settings, SourceTable(NAME, (SourceColumn("Code", type_name, 1, 9),), key), ())


@pytest.mark.parametrize("type_name", ["char", "nchar", "binary"])
def test_padded_key_is_hashed_where_an_index_keeps_its_length(type_name: str) -> None:
    assert why(type_name, declared=False) == ""
    assert f"hashes of a declared key change with the length of {type_name}(9)" in why(type_name, declared=True)


@pytest.mark.parametrize("type_name", ["varchar", "nvarchar", "varbinary", "int", "uniqueidentifier"])
def test_key_that_is_not_padded_is_hashed(type_name: str) -> None:
    assert why(type_name, declared=True) == ""
