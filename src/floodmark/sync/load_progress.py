"""The reports about the tables of a window while they are staged: from the chunks in the ledger, and from staging."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from floodmark.core.errors import FloodmarkError
from floodmark.core.plan import LoadKind, LoadProgress, TablePlan, WindowPlan, is_replay_lane
from floodmark.core.progress import ReadKind, ReadProgress, StepProgress
from floodmark.core.schema import TableName
from floodmark.sync.ports import Progress, StagedNow

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger
    from floodmark.sync.ports import Warehouse

_LOG = logging.getLogger(__name__)


_NOTHING = StagedNow(0, 0)


class LoadWatch:
    """The progress of the tables of a window, from one reading to the next."""

    def __init__(self, plan: WindowPlan, ledger: PostgresLedger, warehouse: Warehouse, progress: Progress) -> None:
        self._plan = plan
        self._ledger = ledger
        self._warehouse = warehouse
        self._progress = progress
        self._tables = {table.source: table for table in plan.tables}
        self._has_chunks = any(table.kind is LoadKind.FIRST_LOAD for table in plan.tables)
        self._began = self._read_at = time.monotonic()
        self._known: dict[TableName, ReadProgress] = {}
        self._begun: dict[TableName, tuple[float, int]] = {}
        """For each table: the reading before the one that first had it, and the rows that an earlier load staged."""
        self._done: set[TableName] = set()
        if self._has_chunks:
            # What is staged by now counts for no rate.
            self._read(is_first=True)

    def begin_step(self, what: str) -> None:
        """Report that a step of the window begins."""
        self._progress.report_step(StepProgress(f"window {self._plan.window_id}: {what}"))

    def report(self) -> None:
        """Read and report the progress of each table that is being staged, then that of the step."""
        for read in self._read():
            if read.table not in self._done:
                self._progress.report(read)
        what, seconds = f"window {self._plan.window_id}: reading", time.monotonic() - self._began
        self._progress.report_step(StepProgress(what, seconds, len(self._tables), len(self._done)))

    def end(self, source: TableName, rows: int) -> None:
        """Report that a table is staged. rows: of the source."""
        self._done.add(source)
        if not rows and source not in self._known:
            return  # of a window, mostly the larger part of the tables
        now, last = time.monotonic(), self._known.get(source)
        begun, earlier = self._begun.get(source, (self._began, 0))
        kind = self._kind_of(self._tables[source])
        chunks = last.chunks if last else 0
        done = ReadProgress(source, kind, rows, now - begun, earlier, rows, chunks, chunks, is_done=True)
        self._progress.report(done)

    def _read(self, *, is_first: bool = False) -> list[ReadProgress]:
        now = time.monotonic()
        try:
            # The ledger first: a chunk that is committed in between is missing once, and not counted twice.
            chunks = self._ledger.read_load_progress(self._plan.window_id) if self._has_chunks else {}
            staged = {} if is_first else self._warehouse.count_staged(self._plan)
        except FloodmarkError as error:
            _LOG.warning("Could not read the progress of the load: %s", error)
            return []
        reads = [self._progress_of(table, chunks, staged, now, is_first=is_first) for table in self._tables.values()]
        self._read_at = now
        self._known |= {read.table: read for read in reads if read is not None}
        return [read for read in reads if read is not None]

    def _progress_of(
        self,
        table: TablePlan,
        chunks: Mapping[TableName, LoadProgress],
        staged: Mapping[TableName, StagedNow],
        now: float,
        *,
        is_first: bool,
    ) -> ReadProgress | None:
        """Return the progress of a table; None for one whose read has not begun, as far as that is known."""
        name, found = table.source, staged.get(table.source, _NOTHING)
        if table.kind is LoadKind.FIRST_LOAD:
            if name not in chunks:
                return None
            counted, rows = chunks[name], chunks[name].rows + found.unfinished_rows
        else:
            counted, rows = LoadProgress(0, 0, 0), found.rows + found.unfinished_rows
            if not rows:
                return None
        last = self._known.get(name)
        if last and counted.staged_chunks >= last.staged_chunks:
            rows = max(rows, last.rows)
        begun, earlier = self._begun.setdefault(name, (self._read_at, counted.rows if is_first else 0))
        total = _expected_rows(table, counted) if counted.chunks else None
        kind = self._kind_of(table)
        return ReadProgress(name, kind, rows, now - begun, earlier, total, counted.staged_chunks, counted.chunks)

    def _kind_of(self, table: TablePlan) -> ReadKind:
        if table.kind is LoadKind.FIRST_LOAD:
            return ReadKind.RELOAD if table.is_reload else ReadKind.FIRST_LOAD
        return ReadKind.REPLAY if is_replay_lane(self._plan.lane) else ReadKind.CHANGES


@contextmanager
def progress_reported(
    plan: WindowPlan, ledger: PostgresLedger, warehouse: Warehouse, progress: Progress
) -> Iterator[LoadWatch]:
    """Report the progress of the tables every few seconds while the block stages them."""
    ended, watch = threading.Event(), LoadWatch(plan, ledger, warehouse, progress)

    def report() -> None:
        while not ended.wait(progress.every_seconds):
            watch.report()

    reporter = threading.Thread(target=report, name="progress", daemon=True)
    watch.begin_step("reading")
    reporter.start()
    try:
        yield watch
    finally:
        ended.set()
        reporter.join()


def _expected_rows(table: TablePlan, counted: LoadProgress) -> int | None:
    """Return about how many rows a first load has. All chunks have the same number of rows, except the last one."""
    if counted.staged_chunks:
        return round(counted.rows / counted.staged_chunks * counted.chunks)
    if counted.chunks > 1:
        return table.settings.first_load.chunk_rows * counted.chunks - table.settings.first_load.chunk_rows // 2
    return None  # the only chunk of a table may be of any size
