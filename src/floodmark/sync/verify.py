"""The comparison of a pipeline's targets with their source, row by row, also while the source is written to.

The rows are read as those of a first load are, one stream per table, a batch in memory at a time. A key that was
changed after the watermark is left out: its change is still to come. What proves that a difference is none of those is
the order of the reads:

1. the watermark, from the ledger;
2. the rows of the source, then those of the target. Runs may publish windows meanwhile. A row that is not the same in
   both was changed after the watermark, or is wrong;
3. the keys that were changed after the watermark. They are read last, so that they include each change that 2. may have
   seen. Capture is later than the commit: while a difference is left, they are read again, until the log has an entry
   from after the read of the rows.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from floodmark.core.definition import as_loaded, refuse_other_definition
from floodmark.core.errors import FloodmarkError, NotCapturedYetError, OperatorError
from floodmark.core.plan import LoadChunk, TablePlan, plan_chunks
from floodmark.core.planning import classify_tables, known_positions, pinned_feeds, plan_table
from floodmark.core.position import Interval, Position, format_duration
from floodmark.core.progress import ReadKind, ReadProgress, StepProgress
from floodmark.core.schema import TableName
from floodmark.core.settings import NetSource, PipelineSettings, Style
from floodmark.core.snapshot import LogEntry, SourceSnapshot, TableState, Verdict
from floodmark.core.status import TableVerification
from floodmark.core.verdicts import incident
from floodmark.sync.columns import ColumnMap, MaskKeys, find_mask_key
from floodmark.sync.ports import DEFAULT_LISTED_KEYS, OpenReader, Progress, RowShape, Source, TableReader
from floodmark.sync.window import require_origin

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.core.snapshot import MemberMark
    from floodmark.postgres.ledger.ledger import PostgresLedger
    from floodmark.postgres.warehouse.verify import PostgresRowComparer

_LOG = logging.getLogger(__name__)
_WHOLE_TABLE = LoadChunk(0, None, None)
_POLL_SECONDS = 1.0
_TICK = timedelta(milliseconds=10)
"""A datetime counts in 1/300 s."""
_FOLLOWED = (Verdict.READY, Verdict.CAUGHT_UP, Verdict.CAPTURE_STOPPED, Verdict.CAPTURE_LAGGING)
"""The verdicts with which all changes after a watermark can be read."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The tables and rows to compare, and how long a difference may stay unproven."""

    tables: Collection[TableName] = ()
    """Only these; none for all."""
    sample_percent: float | None = None
    """About this share of the rows of each table, in whole chunks that are chosen at random; None for all rows."""
    listed_keys: int = DEFAULT_LISTED_KEYS
    patience_seconds: float = 330.0
    """The longest wait for capture, only where a difference is left. An idle source makes an entry every 5 minutes."""


def verify_tables(
    settings: PipelineSettings,
    source: Source,
    open_reader: OpenReader,
    ledger: PostgresLedger,
    comparer: PostgresRowComparer,
    *,
    progress: Progress,
    options: VerifyOptions | None = None,
    mask_keys: MaskKeys | None = None,
) -> Iterator[TableVerification]:
    """Yield one result after the other, in the order of the configuration. Raises from ``core.errors``.

    mask_keys: the secrets of masks, by their connections. Values are masked before they are compared.
    """
    chosen = options or VerifyOptions()
    end, states, tables = _plan(settings, source, ledger, chosen.tables)
    for number, table in enumerate(tables):
        progress.report_step(StepProgress(f"reading {table.source}", 0.0, len(tables), number))
        reader, columns = open_reader(table, end), ColumnMap(table, find_mask_key(table, mask_keys or {}))
        # A window that is published while other tables are read moves the watermark: fewer keys are left out.
        state = ledger.read_tables(settings.name).get(table.source, states.get(table.source))
        changes = LiveChanges(
            # Net changes of the server leave out a row that was inserted and deleted again.
            replace(settings, tables=(replace(table.settings, net=NetSource.SPARK),)),
            source,
            open_reader,
            ledger.list_marks(settings.name),
            {table.source: state} if state and state.watermark else {},
            columns,
            reader.shape,
            chosen.patience_seconds,
            progress,
        )
        chunks = _chunks(reader, chosen.sample_percent)
        batches = columns.all(batch for chunk in chunks for batch in reader.read_chunk(chunk))
        total = comparer.estimate_rows(table)
        reported = rows_reported(table.source, batches, total, progress)
        found = comparer.compare_rows(
            table, reported, chosen.listed_keys, changes, is_sample=chosen.sample_percent is not None
        )
        yield replace(found, unproven=changes.unproven if found.different_keys else "")


def _chunks(reader: TableReader, percent: float | None) -> Sequence[LoadChunk]:
    """Return the chunks to read: the whole table, or at least one of those that a first load would read."""
    if percent is None:
        return (_WHOLE_TABLE,)
    chunks = plan_chunks(reader.read_chunk_bounds())
    return random.sample(chunks, max(1, round(len(chunks) * percent / 100)))


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


def _plan(
    settings: PipelineSettings, source: Source, ledger: PostgresLedger, only: Collection[TableName]
) -> tuple[LogEntry, Mapping[TableName, TableState], list[TablePlan]]:
    """Return the newest entry of the log, the states of the ledger, and a plan of each table as for a first load.

    The columns are those of the capture instance that the pipeline reads: a newer one may have more. Where that one is
    gone, the newest is taken.
    """
    ledger.ensure_schema()
    if only:
        settings = replace(settings, tables=tuple(each for each in settings.tables if each.source in only))
    settings = _without_keyless(settings)
    states = ledger.read_tables(settings.name)
    snapshot = source.read_snapshot(settings.sources, pinned_feeds(settings, states))
    require_origin(settings, snapshot, states)
    if any(table.feed is None for table in snapshot.tables):
        snapshot = source.read_snapshot(settings.sources, pinned_feeds(settings, {}))
    validities = classify_tables(settings, snapshot, {})
    # Rows can be read while the capture job does not run.
    validities = tuple(each for each in validities if each.verdict is not Verdict.CAPTURE_STOPPED)
    if error := incident(settings.name, validities):
        raise error
    if not isinstance(snapshot.newest, Position):
        raise NotCapturedYetError(settings.name, "the capture job has not read the log yet.", "Try again later.")
    found = {table.table: table for table in snapshot.tables}
    plans = []
    for table in settings.tables:
        state = states.get(table.source)
        loaded = as_loaded(table, state)
        if (feed := found[table.source].feed) is not None:
            refuse_other_definition(loaded, state, [column.name for column in feed.table.stored_columns])
        plans.append(plan_table(loaded, found[table.source], snapshot, None, state))
    return LogEntry(snapshot.newest, snapshot.newest_at), states, plans


_NOT_COMPARED = {
    Style.LOG: (
        "its target is a log of changes, and the source has only the newest rows",
        "The checks of each window prove that every change of it is in the log.",
    ),
    Style.SNAPSHOT: (
        "its target is a snapshot, whose rows have no key to compare them by",
        "floodmark reload reads the table again.",
    ),
}


def _without_keyless(settings: PipelineSettings) -> PipelineSettings:
    """Return the settings with the tables whose targets have rows to compare. Raises OperatorError where none has."""
    left_out = {table: _NOT_COMPARED[table.style] for table in settings.tables if table.style in _NOT_COMPARED}
    if settings.tables and len(left_out) == len(settings.tables):
        reasons, hints = (dict.fromkeys(each) for each in zip(*left_out.values(), strict=True))
        raise OperatorError(
            ", ".join(str(table.source) for table in left_out),
            f"{'; '.join(reasons)}: there is nothing to compare.",
            " ".join(hints),
        )
    for table, (reason, _) in left_out.items():
        _LOG.warning("%s is not compared: %s.", table.source, reason)
    return replace(settings, tables=tuple(table for table in settings.tables if table not in left_out))


@dataclass
class LiveChanges:
    """The rows of a table that were changed after its watermark, read as its next window would be.

    Iterate over it after the rows of source and target were read. It yields all changes until now, again and again,
    until they include every change that the read of the rows may have seen, or that cannot be known.
    """

    settings: PipelineSettings
    """Those of the pipeline with this table alone."""
    source: Source
    open_reader: OpenReader
    marks: Mapping[TableName, Sequence[MemberMark]]
    states: Mapping[TableName, TableState]
    """The state of the table when its rows had not been read yet; none where it has no watermark."""
    columns: ColumnMap
    """The mapping of what was read last: keys are compared as the target has them."""
    shape: RowShape
    """The columns of what was read last."""
    patience_seconds: float
    progress: Progress
    unproven: str = ""
    """Why a difference may be a change that is still to come; "" where it is none."""

    def __iter__(self) -> Iterator[tuple[RowShape, Iterable[pa.RecordBatch]]]:
        began, read_at, reported = time.monotonic(), None, None
        while True:
            snapshot = self._read_snapshot()
            # No commit that the read of the rows may have seen has a later time, also if the clock was set back.
            read_at = read_at or snapshot.latest_commit_at or snapshot.taken_at
            if self._cannot_follow(snapshot):
                return
            batches = self._read_next_window(snapshot)
            yield self.columns.shape(self.shape), self._guarded(batches)
            if self.unproven:
                return
            if _has_all(snapshot, read_at):
                # Cleanup may have deleted changes while they were read.
                self._cannot_follow(self._read_snapshot())
                return
            waited = time.monotonic() - began
            if snapshot.capture_running is False or waited > self.patience_seconds:
                self.unproven = (
                    f"the source has not shown within {waited:.0f} s that all changes until {read_at:%H:%M:%S} (its "
                    "clock) were recorded."
                )
                return
            if reported is None or waited - reported >= self.progress.every_seconds:
                self._report_wait(read_at, 0.0 if reported is None else waited)
                reported = waited
            time.sleep(_POLL_SECONDS)

    def _report_wait(self, until: datetime, waited: float) -> None:
        what = f"{self.settings.tables[0].source}: waiting for the capture of all changes up to {until:%H:%M:%S}"
        if not waited:
            limit = format_duration(self.patience_seconds)
            _LOG.info("A difference is left. %s by the source's clock, which takes %s at most.", what, limit)
        self.progress.report_step(StepProgress(what, waited))

    def _guarded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches; an error that would last ends them, and leaves differences unproven."""
        try:
            yield from batches
        except FloodmarkError as error:
            if error.retryable:
                raise
            self.unproven = f"its changes after the watermark cannot be read: {error.message}"

    def _read_snapshot(self) -> SourceSnapshot:
        settings, states = self.settings, self.states
        return self.source.read_snapshot(
            settings.sources, pinned_feeds(settings, states), known_positions(states), self.marks
        )

    def _cannot_follow(self, snapshot: SourceSnapshot) -> bool:
        """Return whether the changes after the watermark cannot be read, and remember why."""
        (validity,), (found,) = classify_tables(self.settings, snapshot, self.states), snapshot.tables
        if validity.verdict not in _FOLLOWED:
            self.unproven = f"{validity.verdict.value}: {validity.cause}"
        elif found.feed is not None and found.feed.member_column and not found.ends:
            self.unproven = "its changes after the watermark cannot be read one by one."
        else:
            self.unproven = ""
        return bool(self.unproven)

    def _read_next_window(self, snapshot: SourceSnapshot) -> Iterable[pa.RecordBatch]:
        """Return the changes after the watermark."""
        (settings,), (found,), newest = self.settings.tables, snapshot.tables, snapshot.newest
        state = self.states[settings.source]
        if not isinstance(newest, Position) or state.watermark is None or newest <= state.watermark:
            return ()
        plan = plan_table(settings, found, snapshot, state)
        # A stream is read from the marks of its partitions on.
        plan = replace(plan, marks=tuple(self.marks.get(settings.source, ())))
        reader = self.open_reader(plan, LogEntry(newest, snapshot.newest_at))
        self.columns, self.shape = replace(self.columns, table=plan), reader.shape
        own = tuple(name for name, _ in reader.shape.own)
        return (self.columns.apply(batch, own) for batch in reader.read(Interval(state.watermark, newest)))


def _has_all(snapshot: SourceSnapshot, read_at: datetime) -> bool:
    """Return whether the snapshot shows every change that was committed until a moment of the source's clock."""
    if snapshot.is_synchronous:
        # The events of a stream are written later than the commit, and nothing shows that they are all there.
        return not any(table.ends for table in snapshot.tables)
    return snapshot.newest_at is not None and snapshot.newest_at > read_at + _TICK
