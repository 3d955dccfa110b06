"""The T-SQL that reads the rows of a table itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from change_histories import histories_plan
from floodmark.core.plan import LoadKind, TablePlan
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.sources.sqlserver import rows


def _first_load(*columns: SourceColumn, key: tuple[str, ...]) -> TablePlan:
    plan = histories_plan()
    table = SourceTable(TableName("dbo", "My]Table"), columns, key)
    return replace(plan, kind=LoadKind.FIRST_LOAD, interval=None, feed=replace(plan.feed, table=table))


def test_chunk_of_a_composite_key_compares_it_as_the_server_orders_it() -> None:
    plan = _first_load(
        SourceColumn("A", "int", 1),
        SourceColumn("B", "varchar", 2, max_length=5),
        SourceColumn("C", "bit", 3),
        key=("A", "B"),
    )
    assert rows.select_rows(plan, has_after=True, has_to=True) == (
        "SELECT [A], [B], [C] FROM [dbo].[My]]Table] WHERE"
        " [A] >= CAST(? AS int) AND (([A] > CAST(? AS int)) OR ([A] = CAST(? AS int) AND [B] > CAST(? AS varchar(5))))"
        " AND [A] <= CAST(? AS int) AND (([A] < CAST(? AS int)) OR"
        " ([A] = CAST(? AS int) AND [B] <= CAST(? AS varchar(5))))"
        " OPTION (MAXDOP 1)"
    )
    assert rows.bound_parameters(plan.feed.table, (1, "x")) == (1, 1, 1, "x")


def test_bound_of_one_column_is_one_parameter() -> None:
    plan = _first_load(SourceColumn("A", "int", 1), key=("A",))
    assert rows.bound_parameters(plan.feed.table, (1,)) == (1,)


def test_rows_without_bounds_are_the_whole_table() -> None:
    plan = _first_load(SourceColumn("A", "int", 1), key=("A",))
    assert rows.select_rows(plan, has_after=False, has_to=False) == (
        "SELECT [A] FROM [dbo].[My]]Table] OPTION (MAXDOP 1)"
    )


@pytest.mark.parametrize(
    ("column", "style", "compared"),
    [
        (SourceColumn("A", "uniqueidentifier", 1), None, "CAST(? AS uniqueidentifier)"),
        (SourceColumn("A", "datetime2", 1, scale=7), 121, "CONVERT(datetime2(7), ?, 121)"),
        (SourceColumn("A", "datetime", 1), 121, "CONVERT(datetime, ?, 121)"),
        (SourceColumn("A", "float", 1), 3, "CONVERT(float, ?, 3)"),
        (SourceColumn("A", "timestamp", 1), None, "CAST(? AS binary(8))"),
    ],
)
def test_bound_travels_in_a_form_that_loses_nothing(column: SourceColumn, style: int | None, compared: str) -> None:
    selected = f"CONVERT(varchar(34), [A], {style})" if style else "[A]"
    plan = _first_load(column, key=("A",))
    text = rows.select_next_bound(plan, has_after=False)
    assert text.startswith(f"SELECT {selected} FROM [dbo].[My]]Table] WITH")
    assert "ORDER BY [A] OFFSET" in text  # the column: the text has no name
    assert rows.key_after(plan.feed.table) == f"(([A] > {compared}))"


def test_key_is_asked_for_nulls_where_it_can_have_them() -> None:
    columns = (SourceColumn("A", "int", 1, nullable=False), SourceColumn("B", "int", 2), SourceColumn("C", "int", 3))
    plan = replace(_first_load(*columns, key=("A", "B", "C")), where="x = 1")
    assert rows.count_null_keys(plan) == (
        "SELECT COUNT_BIG(CASE WHEN [B] IS NULL THEN 1 END), COUNT_BIG(CASE WHEN [C] IS NULL THEN 1 END)"
        " FROM [dbo].[My]]Table] WHERE ([B] IS NULL OR [C] IS NULL) AND (\nx = 1\n)"
    )
    assert rows.nullable_key(_first_load(columns[0], key=("A",))) == ()


def test_next_bound_is_sought_after_the_one_before_without_locks() -> None:
    plan = replace(_first_load(SourceColumn("A", "int", 1), key=("A",)), where="x = 1")
    assert rows.select_next_bound(plan, has_after=True) == (
        "SELECT [A] FROM [dbo].[My]]Table] WITH (READUNCOMMITTED) WHERE (([A] > CAST(? AS int))) AND (\nx = 1\n)"
        " ORDER BY [A] OFFSET ? ROWS FETCH NEXT 1 ROWS ONLY OPTION (MAXDOP 1)"
    )
