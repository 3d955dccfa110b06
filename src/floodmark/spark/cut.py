"""All tables of a window, staged by one task over one connection at one moment of the source.

The changes of such a source are net already, so that they stream from the source to staging.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from traceback import format_exc

import pyarrow as pa
from pyspark.sql import SparkSession

from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.positions import read_position
from floodmark.core.source.history import LogEntry
from floodmark.core.window.load_result import format_error, parse_error
from floodmark.core.window.plan import TablePlan
from floodmark.spark.run_tasks import run_tasks
from floodmark.spark.stage import StageWriter
from floodmark.sync.ports.reader import Cut, CutReader
from floodmark.sync.ports.stager import StagedCut, StagedRows
from floodmark.sync.ports.staging import StagedPart
from floodmark.sync.run.refusals import concerns_one_table

_END = -1
"""The number of the row that has the moment, which comes first."""
_RESULTS = pa.schema(
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
    return StagedCut(end, {row["number"]: _result(row) for row in others})


def _result(row: dict[str, object]) -> StagedRows | FloodmarkError:
    if row["error"]:
        return parse_error(str(row["error"]))
    rows = int(str(row["staged_rows"]))
    return StagedRows(rows, rows, (StagedPart(0, rows, str(row["receipt"])),))


def _batch(**row: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in _RESULTS.names}], schema=_RESULTS)
