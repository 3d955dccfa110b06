"""The T-SQL that reads changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from change_histories import histories_plan
from floodmark.core.position import Interval
from floodmark.core.schema import SourceTable
from floodmark.core.settings import NetSource
from floodmark.sources.cdc import reader
from floodmark.sources.cdc.reader import choose_cuts, cut_interval
from floodmark.sources.sqlserver.rows import batch_bytes
from lsns import lsn
from table_plans import with_settings

VALUES = (
    "[history], CAST([id] AS varbinary(20)) AS [id], [a], CAST([lob] AS varbinary(max)) AS [lob],"
    " CAST(CAST([old] AS nvarchar(max)) AS varbinary(max)) AS [old]"
)


def test_changes_are_read_from_the_change_table_in_a_half_open_interval() -> None:
    moved = "((CAST(SUBSTRING([__$update_mask], DATALENGTH([__$update_mask]) - 0, 1) AS int) & 3) <> 0)"
    assert reader.select_changes(histories_plan()) == (
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
    assert reader.own_columns(plan) == ("__$start_lsn", "__$seqval", "__$operation")


def test_net_changes_of_the_server_come_with_the_mask() -> None:
    assert reader.select_net_changes(histories_plan(net=NetSource.SERVER)) == (
        f"SELECT [__$start_lsn], [__$operation], [__$update_mask], {VALUES}"
        " FROM [cdc].[fn_cdc_get_net_changes_dbo_Histories](?, ?, N'all with mask')"
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
    cut = cut_interval(Interval(lsn(1), lsn(9)), [lsn(number) for number in cuts])
    assert [f"({part.after.value[-1]}, {part.to.value[-1]}]" for part in cut] == parts
    assert all(part.is_followed_by(later) for part, later in pairwise(cut))


@pytest.mark.parametrize(
    ("parts", "chosen"), [(1, []), (2, [4]), (3, [2, 5]), (4, [2, 4, 6]), (8, [1, 2, 3, 4, 5, 6, 7])]
)
def test_fewer_parts_take_every_nth_cut(parts: int, chosen: list[int]) -> None:
    assert choose_cuts([lsn(number) for number in range(1, 9)], parts) == [lsn(number) for number in chosen]


def test_batches_are_bounded_in_bytes_where_rows_have_lobs() -> None:
    plan = with_settings(histories_plan(), lob_batch=1_000_000)
    assert batch_bytes(plan) == 1_000_000
    plain = tuple(column for column in plan.feed.table.columns if not column.is_lob)
    feed = replace(plan.feed, table=replace(plan.feed.table, columns=plain))
    assert batch_bytes(replace(plan, feed=feed)) == 0


def test_changes_get_the_times_of_their_commits_and_null_for_one_that_is_not_known() -> None:
    lsns = [bytes([*[0] * 8, number, 0]) for number in (3, 1, 2, 16)]
    moments = [pa.array(each, pa.timestamp("us")) for each in ([30, 10], [None, 160])]
    commits = [(pa.array(lsns[:2], pa.binary(10)), moments[0]), (pa.array(lsns[2:], pa.binary(10)), moments[1])]
    unknown = bytes([*[0] * 8, 1, 1])
    columns = {
        reader.START_LSN: pa.array([lsns[3], lsns[0], lsns[2], unknown, lsns[1], b"\xff" * 10], pa.binary()),
        reader.COMMITTED_AT: pa.nulls(6, pa.timestamp("us")),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    for known, expected in ((commits, [160, 30, None, None, 10, None]), ([], [None] * 6)):
        times = reader._CommitTimes(known)
        for part in (batch, batch[2:5], batch[:0]):
            found = times.fill(part).column(reader.COMMITTED_AT).cast(pa.int64()).to_pylist()
            assert found == (expected if part is batch else expected[2:5] if part.num_rows else [])
