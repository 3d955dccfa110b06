"""Tables with few changes: read, netted and staged in memory, several of them one after the other in one task.

A job of Spark for each table costs more than the work on a few thousand changes. Here one job does them all, and each
table is one part without a shuffle. A table that turns out to be larger than memory allows is left to ``stager``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from traceback import format_exc

import pyarrow as pa
from pyspark.sql import SparkSession

from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.interval import Interval
from floodmark.core.schema import TableName
from floodmark.core.window.load_result import format_error, parse_error
from floodmark.spark.net import drop_superseded_changes
from floodmark.spark.run_tasks import run_tasks
from floodmark.spark.stage import StageWriter
from floodmark.sync.ports.reader import TableReader
from floodmark.sync.ports.stager import StagedRows
from floodmark.sync.ports.staging import StagedPart
from floodmark.sync.run.refusals import concerns_one_table

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
