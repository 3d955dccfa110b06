"""The T-SQL that reads changes by CHANGETABLE."""

from __future__ import annotations

from dataclasses import replace

from change_histories import histories_plan
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.sources.change_tracking import reader


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
