"""The ports of a run: sources and their readers, the stager, staging, the warehouse, progress and quality."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from traceback import format_exc
from typing import TYPE_CHECKING, Any, Literal, Protocol

from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.plan import Bound, LoadChunk, MemberRead, TableCounts, TablePlan, ValueColumn, WindowPlan
from floodmark.core.position import Position
from floodmark.core.progress import ReadProgress, StepProgress
from floodmark.core.schema import TableName
from floodmark.core.snapshot import LogEntry, MemberMark, SourceSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.core.plan import AdvanceResult
    from floodmark.core.position import Interval
    from floodmark.core.status import TableMeasure

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# ``TableReader``: the rows of one table of a plan, as Arrow batches. Each kind of source has one.
#
# Readers are picklable: they travel to the engine's workers with the secrets of their connection, and are never logged.


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns of a reader's batches: those of the change itself, then the stored values."""

    key: tuple[str, ...]
    own: tuple[tuple[str, str], ...]
    """Name and type (binary, int or moment) of each column of the change; none for rows of the table itself."""
    values: tuple[ValueColumn, ...]
    order: tuple[str, ...]
    """The columns that order the changes of a key."""
    position: str
    """The column of the commit's position, ten bytes."""
    operation: str
    """The column of the operation, a value of ``core.schema.Operation``."""
    mask: str
    """The column whose bits, by ``ValueColumn.ordinal``, show which values a change row has."""

    command: str = ""
    """The column of the number of a statement in its commit; "" where a change has none."""
    sequence: str = ""
    """The column of the place of a change in its statement; "" where a change has none."""
    committed_at: str = ""
    """The column of the time of the commit in UTC; "" where a change has none."""
    remark: str = ""
    """A remark about the order for the log; "" for none."""

    @property
    def optional(self) -> tuple[ValueColumn, ...]:
        """Return the columns that a change row may leave out."""
        return tuple(column for column in self.values if column.is_optional)

    def with_names(self, names: Mapping[str, str]) -> RowShape:
        """Return the shape with other names of values. names: by the name at the source; the others stay."""
        values = tuple(replace(column, name=names.get(column.name, column.name)) for column in self.values)
        return replace(self, key=tuple(names.get(name, name) for name in self.key), values=values)


class TableReader(Protocol):
    """The changes and the rows of a table."""

    @property
    def shape(self) -> RowShape:
        """Return the columns of the batches."""

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        """Yield the changes of an interval, in no order."""

    def read_chunk_bounds(self) -> Sequence[Bound]:
        """Return the keys at which the server cuts the table into chunks, in its own order."""

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a chunk, in a shape without columns of a change."""

    def find_double_key(self) -> tuple[Bound, int] | None:
        """Return a key that several rows have, and their number; None where each key is unique."""


# --------------------------------------------------------------------------------------------------------------------
# ``ReadTask``: a part of the reads of a window, which a source plans and a task of the engine does.


Found = tuple[int, "pa.RecordBatch | FloodmarkError | LogEntry"]
"""What is found of a table, which is known by its place in the plan: rows, the error that ends its rows, or the moment
whose state the rows after it have."""


class ReadTask(Protocol):
    """A read of the changes of tables of a window. It is picklable, as readers are."""

    @property
    def tables(self) -> Collection[int]:
        """Return the tables that are read, by their places in the plan."""

    @property
    def changes(self) -> int | None:
        """Return about how many changes are read; None where they are too many for memory, or were not counted."""

    @property
    def is_net(self) -> bool:
        """Return whether no change has to be netted with those of another task, and the batches of a table follow each
        other: each batch has all changes of its keys, or the table keeps every change.

        They stream to staging. All others are netted, in memory where ``changes`` is known, or behind a shuffle.
        """

    def read(self) -> Iterator[Found]:
        """Yield the changes of the tables, in the shape of their readers and in no order.

        An error that concerns one table takes the place of its next batches. Raises an error about all of them.
        """


@dataclass(frozen=True, slots=True)
class TableRead:
    """``ReadTask`` for an interval of one table."""

    index: int
    """The place of the table in the plan."""
    table: TablePlan
    reader: TableReader
    interval: Interval
    changes: int | None = None
    is_net: bool = False

    @property
    def tables(self) -> tuple[int]:
        return (self.index,)

    def read(self) -> Iterator[Found]:
        return found_of(self.index, self.table, self.reader.read(self.interval))


def found_of(index: int, table: TablePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[Found]:
    """Yield the batches of a table, and the error that ends them."""
    try:
        for batch in batches:
            yield index, batch
    except Exception as error:  # noqa: BLE001  (a bug that one table shows must not stop the others)
        yield index, as_floodmark_error(table, error)


def as_floodmark_error(table: TablePlan, error: Exception) -> FloodmarkError:
    """Return an error that was met while a table was read or staged; as a bug if it is no FloodmarkError."""
    if isinstance(error, FloodmarkError):
        return error
    return FloodmarkBugError(str(table.source), type(error).__name__, "See the log of the job.", format_exc())


@dataclass(frozen=True, slots=True)
class WindowReads:
    """How the changes of a window are read."""

    tasks: Sequence[ReadTask]
    """They may run in parallel. A table without changes has none."""
    unite: Callable[[Mapping[int, Sequence[MemberRead]]], Mapping[int, Sequence[MemberRead]] | None] | None = None
    """Makes of what all tasks say how the members of each table were read. None: together they cannot know it."""
    otherwise: Sequence[ReadTask] = ()
    """What is read in the place of tasks that cannot be united."""
    changes: int | None = None
    """The changes of all tasks; None where they are not known, or are too many to be counted."""


WHOLE_CHANGES = 50_000
"""The most changes of a table that one task nets in memory."""
COUNTED_CHANGES = 3_000_000
"""The most changes of a table that are counted: a load of more is Spark's, and needs no number."""


def read_tables(plan: WindowPlan, open_reader: OpenReader, changes: Mapping[int, int]) -> WindowReads:
    """Return one read for each table with changes. changes: their numbers, where they are counted, by place."""
    tables = {i: each for i, each in enumerate(plan.tables) if each.interval is not None and not each.quiet}
    few = {index: number for index, number in changes.items() if number <= WHOLE_CHANGES}
    tasks = [
        TableRead(index, table, open_reader(table, plan.end), table.interval, few.get(index))
        for index, table in tables.items()
        if table.interval is not None
    ]
    is_counted = changes.keys() >= tables.keys()
    return WindowReads(tasks, changes=sum(changes[index] for index in tables) if is_counted else None)


PlanReads = Callable[["WindowPlan", int], WindowReads]
"""The plan of the reads of a window. A table is cut into at most the given number where its plan does not set it."""
OpenReader = Callable[["TablePlan", "LogEntry"], TableReader]
"""The factory of the reader of a table of a plan, with the entry of the log that a copy of the source must have to be
read (``WindowPlan.end``). The engine pickles it by name: it contains no secret."""


# --------------------------------------------------------------------------------------------------------------------
# ``Source``: the control queries of a source.


class Source(Protocol):
    """The control queries of a source. ``TableReader`` reads the rows."""

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        feeds: Mapping[TableName, str] | None = None,
        positions: Collection[Position] = (),
        marks: Mapping[TableName, Sequence[MemberMark]] | None = None,
        whole: Collection[TableName] = (),
    ) -> SourceSnapshot:
        """Return a snapshot. It takes two statements with constant texts, whatever the number of tables; one for none.

        feeds: the capture instance of tables that have pinned one; for the others, the newest feed is read.
        positions: the positions for ``SourceSnapshot.entries``. A source may know the changes after the lowest alone
        (``TableSnapshot.changes_after``).
        marks: the marks of the members of tables, to find out whether any has changes; None: that is not asked, and no
        table is loaded as a whole by this snapshot, but those of ``whole``.
        whole: the tables that are loaded as a whole, whatever their marks are.
        """


# --------------------------------------------------------------------------------------------------------------------
# ``StagingSink``: the destination to which a worker of the engine writes the rows of one table of a window.


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A part of a table, as one try of a task has brought it to staging."""

    part: int
    rows: int
    receipt: str = ""
    """What names the rows of this try in staging, in any form; "" for a part without rows, and for a chunk of a first
    load, whose rows the ledger records."""


class StagingSink(Protocol):
    """A writer of parts of one table of one attempt at a window. Picklable, with the warehouse's secrets."""

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        """Write a part: stored values, ``__lsn``, ``__op`` and keep flags. Return when it is in staging.

        A part may be written several times, also at the same time: each try of a task reads the source as it is at its
        moment. Of a part of changes the rows of each try are kept apart, and the merge takes those of the try whose
        result it is given, whichever writes last. Of a chunk the rows of one try are kept. Raises from ``core.errors``;
        WatermarkConflictError, and writes nothing, for a load that a later attempt has replaced, or that is merged.
        """


# --------------------------------------------------------------------------------------------------------------------
# ``Stager``: the engine that moves rows from the source to staging.


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The result of staging one table."""

    read_rows: int
    """Rows of the source."""
    staged_rows: int
    """Rows in staging."""
    parts: tuple[StagedPart, ...] = ()
    """The parts that have these rows; none for a first load, whose chunks the ledger has. The merge takes the rows of
    no other try of a part."""
    members: tuple[MemberRead, ...] = ()
    """The members of the table that were examined."""
    read_to: LogEntry | None = None
    """The moment of the source whose state the rows have, not before the end of the plan; None for the plan's end."""


class Stager(Protocol):
    """An engine that reads rows from the source, nets changes, and writes them to a sink."""

    def stage_changes(
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink]
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        """Read the changes of tables, net them and stage them.

        sinks: by the index of a table in the plan. Return the result of each, which may be an error that concerns it
        alone. Raises any other error.
        """

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        """Return the keys at which the server cuts table ``index`` for a first load."""

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        """Return a key that several rows of table ``index`` have at the source, and their number; None for no key."""

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        """Read at most ``parallel_reads`` chunks of table ``index`` at once. A part has the number of its chunk."""


# --------------------------------------------------------------------------------------------------------------------
# ``Warehouse``: targets, staging, the merge and the publication of a window.
#
# Every method raises from ``core.errors``.


DEFAULT_LISTED_KEYS = 20


@dataclass(frozen=True, slots=True)
class WarehouseTraits:
    """The abilities of a kind of warehouse."""

    publishes: Literal["at_merge", "at_advance"]
    """The step at which the rows of a window become visible."""
    tables_at_once: bool
    """Whether all tables of a window become visible together."""
    has_primary_key: bool
    """Whether the target refuses duplicate keys. Without a primary key the merge refuses duplicate keys in staging."""
    shares_ledger: bool
    """Whether staging and merge are written in one transaction with the ledger. If not, the load records them."""
    publishes_in_ledger: bool = False
    """Whether a window is published in the transaction of the ledger that moves the watermarks."""


@dataclass(frozen=True, slots=True)
class StagedNow:
    """About how many rows a staging table has at a moment."""

    rows: int
    """Those of finished writes."""
    unfinished_rows: int
    """Those of writes that are not finished, as far as the warehouse reports them."""


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """The rows of a table of a merged window that are checked."""

    target: TableName
    staged: TableName | None
    """The staging table; None where it no longer exists, so that only the target is checked."""
    has_tombstones: bool = True
    """Whether hard deletes leave tombstones, of which a later window may have written some."""


class Warehouse(Protocol):
    """All that a run needs of a warehouse."""

    def prepare_window(self, plan: WindowPlan) -> None:
        """Create or widen the targets, and create the window's staging tables; those of a killed load are dropped.

        The staging tables of first loads are kept. The subject of an error about one table is its name at the source;
        the window may be prepared again without it.
        """

    def sink(self, plan: WindowPlan, index: int) -> StagingSink:
        """Return the sink for the rows of table ``index`` of this attempt.

        A chunk's rows and its state in the ledger are written in one transaction, which is refused when a later
        attempt at the window has begun.
        """

    def count_parts(self, plan: WindowPlan, index: int) -> Mapping[int, int]:
        """Return the number of rows in staging for each part of a first load."""

    def count_staged(self, plan: WindowPlan) -> Mapping[TableName, StagedNow]:
        """Return about how many rows of each source table are in staging, for progress alone.

        It may be called every second, while the tables are written: it reads no rows.
        """

    def clear_parts(self, plan: WindowPlan, index: int, numbers: Collection[int]) -> None:
        """Remove the rows of parts from staging. Do nothing where the staging of this attempt is gone."""

    def drop_duplicates(self, plan: WindowPlan, index: int) -> int:
        """Keep one row per key in the staging of table ``index``. Return the number of removed rows."""

    def drop_staging(self, window_id: int) -> None:
        """Drop the staging tables of a window."""

    @property
    def traits(self) -> WarehouseTraits:
        """Return the abilities of this kind of warehouse."""

    def merge_window(
        self, plan: WindowPlan, staged: Mapping[TableName, StagedRows] | None = None
    ) -> Mapping[TableName, TableCounts]:
        """Quarantine, merge every table, store the counts, and set the window to MERGED, in one transaction.

        Rows that go to quarantine are removed from staging, which then has ``staged_rows - quarantined_rows`` rows.
        staged: the rows that staging reported; of changes, the rows of other tries of the parts are removed. Raises
        WarehouseUnavailableError when the staging tables have another number of rows (they are not logged, and a crash
        of the warehouse empties them), DataQualityError when a rule with on_failure stop is broken (nothing is merged),
        WatermarkConflictError when the window is no longer PLANNED or another load has begun, and DuplicateKeyError
        about a source table with duplicate keys in staging. The subject of an error about one table is the name of the
        source table; the window may be merged without it.
        """

    def open_rows(self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]) -> Sequence[CheckedRows]:
        """Return the rows of each table of a merged window for the checks. counts: those of its merge, by source."""

    def publish_window(self, plan: WindowPlan, transaction: Any = None) -> None:
        """Make a checked window visible. Repeatable. Does nothing where the merge published it (``traits``).

        transaction: for a warehouse that publishes in the ledger, the ledger's open transaction, with whose end the
        window becomes visible; None for all others. Raises WatermarkConflictError, which rolls the transaction back,
        where what would become visible is not what was merged and checked.
        """


# --------------------------------------------------------------------------------------------------------------------
# ``Progress``: the receiver of reports about reads that take long. The steps do not know whether it draws or logs.


LOG_SECONDS = 10.0
_EARLY = 0.99
"""The share of the time between two lines after which a report counts as due: a timer may fire a little early."""


class Progress(Protocol):
    """A receiver of reports. It is called from several threads, and never fails the work that is reported."""

    @property
    def every_seconds(self) -> float:
        """Return the time after which a further report is wanted, where a report costs a query."""

    def report(self, read: ReadProgress) -> None:
        """Take the progress of the read of a table. It may be called more often than ``every_seconds``."""

    def report_step(self, step: StepProgress) -> None:
        """Take the beginning or the progress of a step."""


class LoggedProgress:
    """``Progress`` as lines of the log, one for each table every few seconds, where it has changed.

    A finished read has no line: the step that read it logs its result.
    """

    def __init__(self, every_seconds: float = LOG_SECONDS) -> None:
        self._every_seconds = every_seconds
        self._logged: dict[TableName, ReadProgress] = {}
        self._is_silent = True
        """Whether no table had a line since the last report about the step."""

    @property
    def every_seconds(self) -> float:
        return self._every_seconds

    def report(self, read: ReadProgress) -> None:
        last = self._logged.get(read.table)
        known = (last.rows, last.staged_chunks) if last else (read.earlier_rows, read.staged_chunks)
        has_news = (read.rows, read.staged_chunks) != known
        since = read.seconds - (last.seconds if last and last.seconds <= read.seconds else 0.0)
        if read.is_done or not has_news or since < _EARLY * self._every_seconds:
            return
        self._logged[read.table], self._is_silent = read, False
        _LOG.info("%s", read)

    def report_step(self, step: StepProgress) -> None:
        """Log the step where nothing else shows that it goes on. Its beginning has lines of its own."""
        if step.seconds and self._is_silent:
            _LOG.info("%s.", str(step)[:1].upper() + str(step)[1:])
        self._is_silent = True


# --------------------------------------------------------------------------------------------------------------------
# ``Metrics``: the receiver of measurements of runs and tables.


class Metrics:
    """The port for measurements. This class has no receiver. Sending never fails the work that is measured."""

    def are_on(self) -> bool:
        """Return whether the measurements have a receiver. If not, they need not be taken."""
        return False

    def send_window(self, result: AdvanceResult, seconds: float | None) -> None:
        """Send the rows of each table of a published window, and how long it took from planning to publication."""

    def send_measures(self, pipeline: str, measures: Iterable[TableMeasure]) -> None:
        """Send the lag and headroom of each table. Unknown values are not sent."""


# --------------------------------------------------------------------------------------------------------------------
# ``Quality``: the checks between merge and advance.


class Quality(Protocol):
    """The checks between merge and advance."""

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        """Check a merged window, and write the report in any case.

        Return, by source table, the error about each table that fails: DataQualityError with expectations and results,
        or the error about a check that cannot be evaluated.
        """


# --------------------------------------------------------------------------------------------------------------------
# Targets that another tool has loaded, and which ``postgres.warehouse.targets`` adopts for a pipeline.


@dataclass(frozen=True, slots=True)
class RowsAge:
    """How old and how new the rows of a target may be."""

    at: LogEntry
    """Every change up to it is in the rows."""
    read_finished_at: datetime | None
    """The time, local to the source, after which no change was committed that is in the rows."""
    read_to: Position | None
    """The newest position at that time."""
    read_to_at: datetime | None
    """The commit time of ``read_to``."""
    begins_at: datetime | None = None
    """The time in UTC of the newest commit up to ``at``, for a history: its first versions begin there."""
