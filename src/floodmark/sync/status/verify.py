"""``verify_tables``: read every table of a pipeline again and compare it with its target.

The rows are read as those of a first load are, one stream per table, a batch in memory at a time. It compares what is
there now: while the source is written to, it differs from its target.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from floodmark.core.errors import NotCapturedYetError
from floodmark.core.position import Position
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.history import LogEntry
from floodmark.core.source.snapshot import Verdict
from floodmark.core.source.verdicts import incident
from floodmark.core.status.pace import Pace
from floodmark.core.status.verification import TableVerification
from floodmark.core.window.chunks import LoadChunk
from floodmark.core.window.plan import TablePlan
from floodmark.core.window.planning import classify_tables, pinned_instances, plan_table
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.reader import OpenReader
from floodmark.sync.ports.source import Source
from floodmark.sync.ports.warehouse import DEFAULT_LISTED_KEYS, RowComparer
from floodmark.sync.window.origin import require_origin

if TYPE_CHECKING:
    import pyarrow as pa

PROGRESS_SECONDS = 10.0
_LOG = logging.getLogger(__name__)
_WHOLE_TABLE = LoadChunk(0, None, None)


def verify_tables(
    settings: PipelineSettings,
    source: Source,
    open_reader: OpenReader,
    ledger: Ledger,
    comparer: RowComparer,
    *,
    listed_keys: int = DEFAULT_LISTED_KEYS,
) -> Iterator[TableVerification]:
    """Yield one result after the other, in the order of the configuration. Raises from ``core.errors``."""
    end, tables = _plan(settings, source, ledger)
    for table in tables:
        batches = open_reader(table, end).read_chunk(_WHOLE_TABLE)
        yield comparer.compare_rows(table, rows_logged(str(table.source), batches), listed_keys)


def rows_logged(
    table: str, batches: Iterable[pa.RecordBatch], seconds: float = PROGRESS_SECONDS
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and log every few seconds how many rows were read."""
    begun = said = time.monotonic()
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        now = time.monotonic()
        if now - said >= seconds:
            said = now
            _LOG.info("%s: %s rows read for the comparison%s.", table, f"{rows:,}", Pace(rows, now - begun).describe())
        yield batch


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
