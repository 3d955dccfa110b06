"""``SparkStager`` without Spark: the tasks of the load job, one after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa

from floodmark.core.plan import WindowPlan
from floodmark.spark.stage import Writers
from floodmark.spark.stager import SparkStager, gather_here
from floodmark.sync.columns import MaskKeys
from floodmark.sync.ports import OpenReader, PlanReads, ReadTask, TableRead, WindowReads, read_tables


def no_engine() -> NoReturn:
    raise AssertionError("the load is without an engine")


class InProcessStager(SparkStager):
    """plan_reads: None to read each table in one part, and net it in memory, without a question to the source."""

    def __init__(
        self, open_reader: OpenReader, plan_reads: PlanReads | None = None, mask_keys: MaskKeys | None = None
    ) -> None:
        super().__init__(no_engine, open_reader, plan_reads or partial(_read_whole, open_reader), mask_keys, 0)

    def _stage_gathered(self, writers: Writers, groups: Sequence[Sequence[ReadTask]]) -> list[dict[str, Any]]:
        staged = gather_here(writers, groups)
        assert staged is not None
        return [dict(row) for row in staged]

    def _collect(
        self, groups: Sequence[Sequence[Any]], work: Callable[[Sequence[Any]], Iterator[pa.RecordBatch]]
    ) -> list[dict[str, Any]]:
        return [row for group in groups for row in _rows_of(work(group))]

    def _cores(self) -> int:
        return 2


def _read_whole(open_reader: OpenReader, plan: WindowPlan, most: int) -> WindowReads:
    few: Mapping[int, int] = dict.fromkeys(range(len(plan.tables)), 0)
    reads = read_tables(plan, open_reader, few)
    # A log streams: held in memory, changes of a key would be dropped that no net change needs.
    tasks = [replace(read, is_net=read.table.is_log) for read in reads.tasks if isinstance(read, TableRead)]
    return replace(reads, tasks=tasks)


def _rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]
