"""``verify_tables``: read every table of a pipeline again and compare it with its target.

The rows are read as those of a first load are, one stream per table, a batch in memory at a time. It compares what is
there now: while the source is written to, it differs from its target.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from floodmark.core.errors import NotCapturedYetError
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.history import LogEntry
from floodmark.core.source.snapshot import Verdict
from floodmark.core.source.verdicts import incident
from floodmark.core.status.read_progress import ReadKind, ReadProgress, StepProgress
from floodmark.core.status.verification import TableVerification
from floodmark.core.window.chunks import LoadChunk
from floodmark.core.window.plan import TablePlan
from floodmark.core.window.planning import classify_tables, pinned_instances, plan_table
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.progress import Progress
from floodmark.sync.ports.reader import OpenReader
from floodmark.sync.ports.source import Source
from floodmark.sync.ports.warehouse import DEFAULT_LISTED_KEYS, RowComparer
from floodmark.sync.window.origin import require_origin

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE_TABLE = LoadChunk(0, None, None)


def verify_tables(
    settings: PipelineSettings,
    source: Source,
    open_reader: OpenReader,
    ledger: Ledger,
    comparer: RowComparer,
    *,
    progress: Progress,
    listed_keys: int = DEFAULT_LISTED_KEYS,
) -> Iterator[TableVerification]:
    """Yield one result after the other, in the order of the configuration. Raises from ``core.errors``."""
    end, tables = _plan(settings, source, ledger)
    for number, table in enumerate(tables):
        progress.report_step(StepProgress(f"reading {table.source}", 0.0, len(tables), number))
        batches = open_reader(table, end).read_chunk(_WHOLE_TABLE)
        total = comparer.estimate_rows(table)
        yield comparer.compare_rows(table, rows_reported(table.source, batches, total, progress), listed_keys)


def rows_reported(
    table: TableName, batches: Iterable[pa.RecordBatch], total_rows: int | None, progress: Progress
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and report how many rows were read. total_rows: about how many there are; None: unknown."""
    begun, rows = time.monotonic(), 0
    for batch in batches:
        rows += batch.num_rows
        seconds = time.monotonic() - begun
        progress.report(ReadProgress(table, ReadKind.COMPARISON, rows, seconds, total_rows=total_rows))
        yield batch
    seconds = time.monotonic() - begun
    progress.report(ReadProgress(table, ReadKind.COMPARISON, rows, seconds, total_rows=rows, is_done=True))
    progress.report_step(StepProgress(f"comparing {table}"))


def _plan(settings: PipelineSettings, source: Source, ledger: Ledger) -> tuple[LogEntry, list[TablePlan]]:
    """Return the newest entry of the log, and a plan of each table as for a first load.

    The columns are those of the capture instance that the pipeline reads: a newer one may have more. Where that one is
    gone, the newest is taken.
    """
    ledger.ensure_schema()
    states = ledger.read_tables(settings.name)
    snapshot = source.read_snapshot(settings.sources, pinned_instances(settings, states))
    require_origin(settings, snapshot, states)
    if any(table.instance is None for table in snapshot.tables):
        snapshot = source.read_snapshot(settings.sources, pinned_instances(settings, {}))
    validities = classify_tables(settings, snapshot, {})
    # Rows can be read while the capture job does not run.
    validities = tuple(each for each in validities if each.verdict is not Verdict.CAPTURE_STOPPED)
    if error := incident(settings.name, validities):
        raise error
    if not isinstance(snapshot.max_lsn, Position):
        raise NotCapturedYetError(settings.name, "the capture job has not read the log yet.", "Try again later.")
    found = {table.table: table for table in snapshot.tables}
    plans = [plan_table(table, found[table.source], snapshot, None) for table in settings.tables]
    return LogEntry(snapshot.max_lsn, snapshot.max_lsn_at), plans
