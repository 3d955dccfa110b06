"""The groups of small tables, and what an error in one of them does to the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from change_histories import histories_plan, shape_of
from floodmark.core.errors import FloodmarkError, SourceUnavailableError, TargetRefusedError
from floodmark.core.position import Interval, Lsn
from floodmark.core.schema import TableName
from floodmark.spark.stage import SmallTable, StageWriter, _stage_group, deal
from floodmark.sync.ports import StagedPart


@dataclass(frozen=True)
class FailingSink:
    error: Exception | None

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        if self.error:
            raise self.error
        return StagedPart(part, sum(batch.num_rows for batch in batches), "there")


class EmptyReader:
    shape = shape_of(histories_plan())

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        return iter(())


def small_table(index: int, error: Exception | None = None, changes: int = 1) -> SmallTable:
    plan, end = histories_plan(), Lsn(b"\x01" * 10)
    writer = StageWriter(shape_of(plan), plan.kind, plan.settings.net, end.value, FailingSink(error))
    reader: Any = EmptyReader()
    interval = Interval(Lsn(b"\0\0\0\1".ljust(10, b"\0")), end)
    return SmallTable(index, TableName("dbo", f"T{index}"), interval, changes, reader, writer)


@pytest.mark.parametrize(
    ("error", "staged"),
    [
        (TargetRefusedError("dbo.T1", "no"), [0, 1, 2]),
        (ZeroDivisionError(), [0, 1, 2]),
        (SourceUnavailableError("dbo.T1", "gone"), [0, 1]),
    ],
)
def test_error_that_all_tables_would_have_ends_the_group(error: FloodmarkError, staged: list[int]) -> None:
    batches = _stage_group([small_table(0), small_table(1, error), small_table(2)], 1)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["number"] for row in rows] == staged
    assert [bool(row["error"]) for row in rows] == [number == 1 for number in staged]
    assert rows[0]["receipt"] == "there"


def test_groups_have_about_as_many_changes_and_none_is_empty() -> None:
    tables = [small_table(number, changes=changes) for number, changes in enumerate((40_000, 9_000, 9_000, 9_000, 10))]
    groups = deal(tables, 2)
    assert sorted(sorted(table.index for table in group) for group in groups) == [[0], [1, 2, 3, 4]]
    assert [len(group) for group in deal([replace(tables[0])], 4)] == [1]
