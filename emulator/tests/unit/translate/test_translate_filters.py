"""Functions of the catalog in a WHERE clause: PostgreSQL calls a stable one for each row, and a subquery once."""

from __future__ import annotations

import pytest

from translate_catalog import FakeCatalog, table
from translate_statement import translate

_CATALOG = FakeCatalog(table(9001, "Shop.sys.tables", "name sysname!; object_id int!; schema_id int!"))


@pytest.mark.parametrize(
    ("filtered", "is_called_once"),
    [
        ("object_id = OBJECT_ID(N'dbo.clients')", True),
        ("object_id = OBJECT_ID(@n)", True),
        ("object_id = OBJECT_ID(N'dbo.' + @n, N'U')", True),
        ("schema_id = SCHEMA_ID(N'dbo') AND name = @n", True),
        ("OBJECT_ID(name) = 1", False),
        ("OBJECT_ID(N'dbo.' + name) = 1", False),
        ("object_id = OBJECT_ID((SELECT max(t.name) FROM sys.tables AS t))", False),
        ("object_id = OBJECT_ID(CAST(NEWID() AS nvarchar(36)))", False),
        ("schema_id = SCHEMA_ID()", False),
    ],
)
def test_call_without_columns_is_a_subquery_of_a_filter(filtered: str, is_called_once: bool) -> None:
    text = translate(f"SELECT name FROM sys.tables WHERE {filtered}", catalog=_CATALOG, n="nvarchar(128)").sql
    assert ("(SELECT tsql.object_id(" in text or "(SELECT tsql.schema_id(" in text) == is_called_once


def test_call_outside_of_a_filter_stays_as_it_is() -> None:
    text = translate("SELECT OBJECT_ID(N'dbo.clients') AS id, name FROM sys.tables", catalog=_CATALOG).sql
    assert "(SELECT tsql" not in text
