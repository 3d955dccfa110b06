"""Staging: each Spark task nets the rows of its part and passes them to the warehouse's sink.

It runs in Spark's Python workers. The rows never pass through the driver, which gets one row of counts per part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from traceback import format_exc
from typing import TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.plan import LoadChunk, LoadKind, MemberRead, TablePlan
from floodmark.core.planning import format_error, parse_error
from floodmark.core.position import Interval, read_position
from floodmark.core.schema import TableName
from floodmark.core.settings import NetSource
from floodmark.core.snapshot import LogEntry
from floodmark.spark.errors import transported_errors
from floodmark.spark.net import (
    Unpacked,
    adapt_net_changes,
    collapse_changes,
    drop_superseded_changes,
    entries,
    stamp_first_load,
)
from floodmark.sync.load import concerns_one_table
from floodmark.sync.ports import Cut, CutReader, RowShape, StagedCut, StagedPart, StagedRows, StagingSink, TableReader
from floodmark.sync.records import format_members, noted

COUNTS_SCHEMA = "part int, read_rows long, staged_rows long, receipt string, members string"
_COUNTS = pa.schema(
    [
        ("part", pa.int32()),
        ("read_rows", pa.int64()),
        ("staged_rows", pa.int64()),
        ("receipt", pa.string()),
        ("members", pa.string()),
    ]
)


@dataclass(frozen=True)
class StageWriter:
    """A writer of the parts of one table. It travels to the workers, with the warehouse's secrets in its sink."""

    shape: RowShape
    kind: LoadKind
    net: NetSource
    rows_at: bytes
    """The position of the rows of a first load."""
    sink: StagingSink

    def write_packed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the part of a task. For ``DataFrame.mapInArrow`` with ``COUNTS_SCHEMA``, over packed batches."""
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        with transported_errors():
            rows = Unpacked(entries(batches))
            staged = self.sink.write(part, self.net_rows(rows))
        yield _counted(staged, rows.source_rows, rows.members)

    def write_intervals(
        self, reader: TableReader, intervals: Sequence[tuple[int, Interval]]
    ) -> Iterator[pa.RecordBatch]:
        """Read and write changes that need not be brought together by key, each interval as the part of its number."""
        for number, interval in intervals:
            yield self._write_rows(number, reader.read(interval))

    def write_chunks(self, reader: TableReader, chunks: Sequence[LoadChunk]) -> Iterator[pa.RecordBatch]:
        """Read and write chunks of the table itself, each as the part of its number."""
        for chunk in chunks:
            yield self._write_rows(chunk.number, reader.read_chunk(chunk))

    def _write_rows(self, part: int, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        members: list[MemberRead] = []
        staged = self.sink.write(part, self.net_rows(batch for batch in noted(batches, members) if batch.num_rows))
        # Each row that was read is staged.
        return _counted(staged, staged.rows, members)

    def net_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows to be staged: stored columns, ``__lsn``, ``__op``, keep flags."""
        if self.kind is LoadKind.FIRST_LOAD:
            return stamp_first_load(batches, self.shape, self.rows_at)
        if self.net is NetSource.SERVER:
            return adapt_net_changes(batches, self.shape)
        return collapse_changes(batches, self.shape)


def _counted(staged: StagedPart, read_rows: int, members: Sequence[MemberRead] = ()) -> pa.RecordBatch:
    row = {
        "part": staged.part,
        "read_rows": read_rows,
        "staged_rows": staged.rows,
        "receipt": staged.receipt,
        "members": format_members(members),
    }
    return pa.RecordBatch.from_pylist([row], schema=_COUNTS)


# --------------------------------------------------------------------------------------------------------------------
# Tasks of Spark that are given what to do: one for each group of parts, in Python, over Arrow batches.
#
# Spark's Python data sources can do the same. Each read of one starts four processes of Python on the driver's machine,
# one after the other: two seconds before the first row (ADR 56).


_Part = TypeVar("_Part")
_Work = Callable[[Sequence[_Part]], Iterable[pa.RecordBatch]]


def run_tasks(session: SparkSession, groups: Sequence[Sequence[_Part]], work: _Work[_Part], schema: str) -> DataFrame:
    """Return the batches that ``work`` yields for each group, with a task for each.

    Groups and work are pickled, and every task gets all of them. No query plan shows them.
    """
    numbers = session.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(partial(_run, groups, work), schema)


def deal_in_turn(parts: Sequence[_Part], groups: int) -> list[Sequence[_Part]]:
    """Assign parts to groups in turn, so that all tasks move through the table together. None is empty."""
    return [parts[first::groups] for first in range(min(groups, len(parts)))]


def _run(
    groups: Sequence[Sequence[_Part]], work: _Work[_Part], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with transported_errors():
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(groups[number])


# --------------------------------------------------------------------------------------------------------------------
# Tables with few changes: read, netted and staged in memory, several of them one after the other in one task.
#
# A job of Spark for each table costs more than the work on a few thousand changes. Here one job does them all, and each
# table is one part without a shuffle. A table that turns out to be larger than memory allows is left to ``stager``.


MOST_BYTES = 64 << 20
"""The changes of a table that a task holds in memory; LOBs may be of any size."""
_STATEMENTS_COST = 1_000
"""The cost of a table's statements, in changes."""
_Row = dict[str, object]
_RESULTS_SCHEMA = "number int, read_rows long, staged_rows long, receipt string, error string"
_RESULTS = pa.schema(
    [
        ("number", pa.int32()),
        ("read_rows", pa.int64()),
        ("staged_rows", pa.int64()),
        ("receipt", pa.string()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True)
class SmallTable:
    """A table of a plan, as it travels to a task."""

    index: int
    """Its place in the plan."""
    source: TableName
    interval: Interval
    changes: int
    reader: TableReader
    writer: StageWriter


def stage_small_tables(
    session: SparkSession, tables: Sequence[SmallTable], tasks: int
) -> dict[int, StagedRows | FloodmarkError]:
    """Stage tables in so many tasks. Return the result of each by its index; none for a table that is too large."""
    work = partial(_stage_group, most_bytes=MOST_BYTES)
    found = run_tasks(session, deal(tables, tasks), work, _RESULTS_SCHEMA).collect()
    return {row.number: _result(row.read_rows, row.staged_rows, row.receipt, row.error) for row in found}


def deal(tables: Sequence[SmallTable], groups: int) -> list[list[SmallTable]]:
    """Divide tables into groups of about as many changes. None is empty."""
    dealt: list[list[SmallTable]] = [[] for _ in range(min(groups, len(tables)))]
    loads = [0] * len(dealt)
    for table in sorted(tables, key=lambda each: each.changes, reverse=True):
        lightest = loads.index(min(loads))
        dealt[lightest].append(table)
        # Every table costs its statements, too.
        loads[lightest] += table.changes + _STATEMENTS_COST
    return dealt


def _stage_group(tables: Sequence[SmallTable], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Stage tables one after the other, up to an error that the next ones would have too, each after its timeouts."""
    for table in tables:
        row: _Row = {"number": table.index, "read_rows": 0, "staged_rows": 0, "receipt": "", "error": ""}
        try:
            changes, read_rows = _read(table, most_bytes)
            if changes is None:
                continue
            staged = table.writer.sink.write(0, table.writer.net_rows([changes] if changes.num_rows else []))
            row |= {"read_rows": read_rows, "staged_rows": staged.rows, "receipt": staged.receipt}
        except Exception as found:  # noqa: BLE001  (a bug that one table shows must not stop the others)
            error = found if isinstance(found, FloodmarkError) else _bug(table, found)
            yield _to_batch(row | {"error": format_error(error)})
            if not concerns_one_table(error):
                return
        else:
            yield _to_batch(row)


def _bug(table: SmallTable, found: Exception) -> FloodmarkBugError:
    return FloodmarkBugError(str(table.source), type(found).__name__, "See the log of the job.", format_exc())


def _to_batch(row: _Row) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], schema=_RESULTS)


def _read(table: SmallTable, most_bytes: int) -> tuple[pa.RecordBatch | None, int]:
    """Return all changes that a net change may need, as one batch, and the number of those that were read."""
    shape, kept, size, rows = table.reader.shape, [], 0, 0
    for batch in table.reader.read(table.interval):
        rows += batch.num_rows
        kept.append(drop_superseded_changes(batch, shape) if batch.num_rows else batch)
        size += kept[-1].nbytes
        if size > most_bytes:
            return None, rows
    return (pa.concat_batches(kept) if kept else pa.RecordBatch.from_pylist([])), rows


def _result(read_rows: int, staged_rows: int, receipt: str, error: str) -> StagedRows | FloodmarkError:
    if error:
        return parse_error(error)
    return StagedRows(read_rows, staged_rows, (StagedPart(0, staged_rows, receipt),))


# --------------------------------------------------------------------------------------------------------------------
# All tables of a window, staged by one task over one connection at one moment of the source.
#
# The changes of such a source are net already, so that they stream from the source to staging.


_END = -1
"""The number of the row that has the moment, which comes first."""
_CUT_RESULTS = pa.schema(
    [
        ("number", pa.int32()),
        ("staged_rows", pa.int64()),
        ("receipt", pa.string()),
        ("error", pa.string()),
        ("read_to", pa.binary()),
        ("read_to_at", pa.string()),
    ]
)
_SCHEMA = "number int, staged_rows long, receipt string, error string, read_to binary, read_to_at string"


@dataclass(frozen=True)
class CutTable:
    """A table of a plan, as it travels to the task."""

    number: int
    """Its place in the plan."""
    plan: TablePlan
    writer: StageWriter


def stage_cut_in_task(session: SparkSession, reader: CutReader, tables: Sequence[CutTable]) -> StagedCut | None:
    """Stage tables at one moment of the source; None where the source does not allow it."""
    return read_results(run_tasks(session, [tables], partial(stage_at_once, reader), _SCHEMA).toArrow().to_batches())


def stage_at_once(reader: CutReader, tables: Sequence[CutTable]) -> Iterator[pa.RecordBatch]:
    """Stage tables one after the other, up to an error that the next ones would have too. Yield the results."""
    with reader.open() as cut:
        if cut is None:
            return
        at = cut.end.committed_at
        yield _batch(number=_END, read_to=cut.end.lsn.value, read_to_at=at.isoformat() if at else None)
        for table in tables:
            result = _stage(cut, table)
            yield _batch(number=table.number, **_to_row(result))
            if isinstance(result, FloodmarkError) and not concerns_one_table(result):
                return


def _stage(cut: Cut, table: CutTable) -> StagedPart | FloodmarkError:
    try:
        batches = (batch for batch in cut.read(table.plan) if batch.num_rows)
        return table.writer.sink.write(0, table.writer.net_rows(batches))
    except FloodmarkError as error:
        return error
    except Exception as found:  # noqa: BLE001  (a bug that one table shows must not stop the others)
        details = format_exc()
        return FloodmarkBugError(str(table.plan.source), type(found).__name__, "See the log of the job.", details)


def _to_row(result: StagedPart | FloodmarkError) -> dict[str, object]:
    if isinstance(result, FloodmarkError):
        return {"error": format_error(result)}
    return {"staged_rows": result.rows, "receipt": result.receipt}


def read_results(batches: Sequence[pa.RecordBatch]) -> StagedCut | None:
    """Return what the task has yielded."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    if not rows:
        return None
    first, *others = rows
    at = first["read_to_at"]
    end = LogEntry(read_position(first["read_to"]), datetime.fromisoformat(at) if at else None)
    return StagedCut(end, {row["number"]: _cut_result(row) for row in others})


def _cut_result(row: dict[str, object]) -> StagedRows | FloodmarkError:
    if row["error"]:
        return parse_error(str(row["error"]))
    rows = int(str(row["staged_rows"]))
    return StagedRows(rows, rows, (StagedPart(0, rows, str(row["receipt"])),))


def _batch(**row: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in _CUT_RESULTS.names}], schema=_CUT_RESULTS)


# --------------------------------------------------------------------------------------------------------------------
# The answer of a Spark worker about the Floodmark that it runs.


VERSION_SCHEMA = "version string"
"""The columns of ``report_version``."""


def _installed_version() -> str:
    try:
        return version("floodmark")
    except PackageNotFoundError:
        # Executors may have the folder of the package alone.
        return ""


LOADED_VERSION = _installed_version()
"""The version of this process's Floodmark, "" where it is unknown.

It is the one that was installed when the process began: a resident daemon goes on with it after an upgrade.
"""


def report_version(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row for a task that has rows. For ``DataFrame.mapInArrow`` with ``VERSION_SCHEMA``."""
    if sum(batch.num_rows for batch in batches):
        yield pa.RecordBatch.from_pydict({"version": [LOADED_VERSION]})
