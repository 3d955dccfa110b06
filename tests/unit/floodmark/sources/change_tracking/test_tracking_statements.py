"""The T-SQL that reads changes by CHANGETABLE."""

from __future__ import annotations

from dataclasses import replace

from change_histories import histories_plan
from floodmark.core.plan import LoadKind
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import Style
from floodmark.sources.change_tracking import reader
from table_plans import with_settings


def test_changes_are_joined_with_the_rows_by_the_whole_key() -> None:
    plan = histories_plan()
    columns = (SourceColumn("A", "int", 1), SourceColumn("B]", "bigint", 2), SourceColumn("Note", "ntext", 3))
    table = SourceTable(TableName("dbo", "My]Table"), columns, ("A", "B]"))
    assert reader.select_changes(replace(plan, feed=replace(plan.feed, table=table))) == (
        "SELECT [__$version], [__$operation], [__$update_mask], [A], [B]]],"
        " CAST(CAST([Note] AS nvarchar(max)) AS varbinary(max)) AS [Note]"
        " FROM (SELECT CAST(0x0000 AS binary(2)) + CAST(c.SYS_CHANGE_VERSION + 1 AS binary(8)) AS [__$version],"
        " CASE c.SYS_CHANGE_OPERATION WHEN N'D' THEN 1 WHEN N'I' THEN 2 ELSE 4 END AS [__$operation],"
        " CAST(NULL AS varbinary(1)) AS [__$update_mask],"
        " CASE WHEN t.[A] IS NULL THEN c.[A] ELSE t.[A] END AS [A],"
        " CASE WHEN t.[A] IS NULL THEN c.[B]]] ELSE t.[B]]] END AS [B]]], t.[Note]"
        " FROM CHANGETABLE(CHANGES [dbo].[My]]Table], ?) AS c"
        " LEFT JOIN [dbo].[My]]Table] AS t ON t.[A] = c.[A] AND t.[B]]] = c.[B]]]"
        " WHERE c.SYS_CHANGE_OPERATION = N'D' OR NOT t.[A] IS NULL) AS r"
    )


def test_changes_that_are_kept_come_with_the_time_of_their_commit_or_of_the_read() -> None:
    plan = with_settings(histories_plan(), style=Style.HISTORY)
    commits = reader.select_commits(has_zone=False)
    assert commits.endswith(" FROM sys.dm_tran_commit_table AS v WHERE v.commit_ts > ?) AS l")
    text = reader.select_changes(plan, commits)
    assert "COALESCE(m.[__$committed_at], CAST(SYSUTCDATETIME() AS datetime2(3))) AS [__$committed_at]" in text
    assert text.endswith(
        f" LEFT JOIN ({commits}) AS m ON m.[__$commit] = c.SYS_CHANGE_VERSION"
        " WHERE c.SYS_CHANGE_OPERATION = N'D' OR NOT t.[history] IS NULL) AS r"
    )
    assert "CAST(SYSUTCDATETIME() AS datetime2(3)) AS [__$committed_at]" in reader.select_changes(plan)
    assert "dm_tran_commit_table" not in reader.select_changes(plan)


def test_changes_after_the_end_are_cut_off_whatever_their_operation_is() -> None:
    plan = with_settings(histories_plan(), style=Style.LOG)
    cut = " WHERE (c.SYS_CHANGE_OPERATION = N'D' OR NOT t.[history] IS NULL) AND c.SYS_CHANGE_VERSION <= ?) AS r"
    assert reader.select_changes(plan, is_cut=True).endswith(cut)


def test_rows_of_a_load_have_no_columns_of_a_change() -> None:
    plan = with_settings(histories_plan(), style=Style.HISTORY)
    assert [name for name, _ in reader.own_columns(plan)][-1] == "__$committed_at"
    assert reader.own_columns(replace(plan, kind=LoadKind.FIRST_LOAD)) == ()
