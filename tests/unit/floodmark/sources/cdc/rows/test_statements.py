"""The T-SQL that reads rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from change_histories import histories_plan
from floodmark.core.interval import Interval
from floodmark.core.lsn import Lsn
from floodmark.core.policies import NetSource
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.sources.cdc.rows import statements
from floodmark.sources.cdc.rows.change_reader import batch_bytes
from floodmark.sources.cdc.rows.feed import instance_of
from floodmark.sources.cdc.rows.parts import choose_cuts, cut_interval

VALUES = (
    "[history], CAST([id] AS varbinary(20)) AS [id], [a], CAST([lob] AS varbinary(max)) AS [lob],"
    " CAST(CAST([old] AS nvarchar(max)) AS varbinary(max)) AS [old]"
)


def _lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(10))


def _first_load(*columns: SourceColumn, key: tuple[str, ...]) -> TablePlan:
    plan = histories_plan()
    table = SourceTable(TableName("dbo", "My]Table"), columns, key)
    return replace(plan, kind=LoadKind.FIRST_LOAD, interval=None, feed=replace(plan.feed, table=table))


def test_changes_are_read_from_the_change_table_in_a_half_open_interval() -> None:
    moved = "((CAST(SUBSTRING([__$update_mask], DATALENGTH([__$update_mask]) - 0, 1) AS int) & 3) <> 0)"
    assert statements.select_changes(histories_plan()) == (
        "SELECT [__$start_lsn], [__$command_id], [__$seqval],"
        f" CASE WHEN [__$operation] = 4 AND {moved} THEN 6 ELSE [__$operation] END AS [__$operation],"
        f" [__$update_mask], {VALUES} FROM [cdc].[dbo_Histories_CT]"
        f" WHERE [__$start_lsn] > ? AND [__$start_lsn] <= ? AND ([__$operation] <> 3 OR {moved})"
        " OPTION (MAXDOP 1)"
    )


def test_changes_without_command_ids_or_lobs_are_read_without_those_columns() -> None:
    plan = histories_plan(has_command_id=False)
    table = SourceTable(plan.source, plan.feed.table.columns[:3], plan.feed.table.key)
    plan = replace(plan, feed=replace(plan.feed, table=table))
    assert statements.own_columns(plan) == ("__$start_lsn", "__$seqval", "__$operation")


def test_net_changes_of_the_server_come_with_the_mask() -> None:
    assert statements.select_net_changes(histories_plan(net=NetSource.SERVER)) == (
        f"SELECT [__$start_lsn], [__$operation], [__$update_mask], {VALUES}"
        " FROM [cdc].[fn_cdc_get_net_changes_dbo_Histories](?, ?, N'all with mask')"
    )


def test_chunk_of_a_composite_key_compares_it_as_the_server_orders_it() -> None:
    plan = _first_load(
        SourceColumn("A", "int", 1),
        SourceColumn("B", "varchar", 2, max_length=5),
        SourceColumn("C", "bit", 3),
        key=("A", "B"),
    )
    assert statements.select_rows(plan, has_after=True, has_to=True) == (
        "SELECT [A], [B], [C] FROM [dbo].[My]]Table] WHERE"
        " [A] >= CAST(? AS int) AND (([A] > CAST(? AS int)) OR ([A] = CAST(? AS int) AND [B] > CAST(? AS varchar(5))))"
        " AND [A] <= CAST(? AS int) AND (([A] < CAST(? AS int)) OR"
        " ([A] = CAST(? AS int) AND [B] <= CAST(? AS varchar(5))))"
        " OPTION (MAXDOP 1)"
    )
    assert statements.bound_parameters(plan.feed.table, (1, "x")) == (1, 1, 1, "x")


def test_bound_of_one_column_is_one_parameter() -> None:
    plan = _first_load(SourceColumn("A", "int", 1), key=("A",))
    assert statements.bound_parameters(plan.feed.table, (1,)) == (1,)


def test_rows_without_bounds_are_the_whole_table() -> None:
    plan = _first_load(SourceColumn("A", "int", 1), key=("A",))
    assert statements.select_rows(plan, has_after=False, has_to=False) == (
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
    text = statements.select_next_bound(plan, has_after=False)
    assert text.startswith(f"SELECT {selected} FROM [dbo].[My]]Table] WITH")
    assert "ORDER BY [A] OFFSET" in text  # the column: the text has no name
    assert statements.key_after(plan.feed.table) == f"(([A] > {compared}))"


def test_key_is_asked_for_nulls_where_it_can_have_them() -> None:
    columns = (SourceColumn("A", "int", 1, nullable=False), SourceColumn("B", "int", 2), SourceColumn("C", "int", 3))
    plan = replace(_first_load(*columns, key=("A", "B", "C")), where="x = 1")
    assert statements.count_null_keys(plan) == (
        "SELECT COUNT_BIG(CASE WHEN [B] IS NULL THEN 1 END), COUNT_BIG(CASE WHEN [C] IS NULL THEN 1 END)"
        " FROM [dbo].[My]]Table] WHERE ([B] IS NULL OR [C] IS NULL) AND (\nx = 1\n)"
    )
    assert statements.nullable_key(_first_load(columns[0], key=("A",))) == ()


def test_next_bound_is_sought_after_the_one_before_without_locks() -> None:
    plan = replace(_first_load(SourceColumn("A", "int", 1), key=("A",)), where="x = 1")
    assert statements.select_next_bound(plan, has_after=True) == (
        "SELECT [A] FROM [dbo].[My]]Table] WITH (READUNCOMMITTED) WHERE (([A] > CAST(? AS int))) AND (\nx = 1\n)"
        " ORDER BY [A] OFFSET ? ROWS FETCH NEXT 1 ROWS ONLY OPTION (MAXDOP 1)"
    )


@pytest.mark.parametrize(
    ("cuts", "parts"),
    [
        ([], ["(1, 9]"]),
        ([9], ["(1, 9]"]),
        ([4, 9], ["(1, 4]", "(4, 9]"]),
        ([1, 4, 6, 12], ["(1, 4]", "(4, 6]", "(6, 9]"]),
    ],
)
def test_cut_interval_covers_it_without_gap_or_overlap(cuts: list[int], parts: list[str]) -> None:
    cut = cut_interval(Interval(_lsn(1), _lsn(9)), [_lsn(number) for number in cuts])
    assert [f"({part.after_lsn.value[-1]}, {part.to_lsn.value[-1]}]" for part in cut] == parts
    assert all(part.is_followed_by(later) for part, later in pairwise(cut))


@pytest.mark.parametrize(
    ("parts", "chosen"), [(1, []), (2, [4]), (3, [2, 5]), (4, [2, 4, 6]), (8, [1, 2, 3, 4, 5, 6, 7])]
)
def test_fewer_parts_take_every_nth_cut(parts: int, chosen: list[int]) -> None:
    assert choose_cuts([_lsn(number) for number in range(1, 9)], parts) == [_lsn(number) for number in chosen]


def test_batches_are_bounded_in_bytes_where_rows_have_lobs() -> None:
    plan = replace(histories_plan(), lob_batch_bytes=1_000_000)
    assert batch_bytes(plan) == 1_000_000
    plain = tuple(column for column in plan.feed.table.columns if not column.is_lob)
    feed = replace(instance_of(plan), table=replace(plan.feed.table, columns=plain))
    assert batch_bytes(replace(plan, feed=feed)) == 0
