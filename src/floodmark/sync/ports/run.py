"""What the story of a run needs from the outside. Adapters: ``sqlserver.source``, ``spark``, ``ledger.postgres``,
``warehouse.postgres``, ``quality.great_expectations``; every method raises from ``core.errors``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from floodmark.core.lsn import Lsn
from floodmark.core.policies import Rule
from floodmark.core.recovery.gap import Gap
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import InstanceIdentity, SourceSnapshot, Validity
from floodmark.core.source.state import TableState
from floodmark.core.window.chunks import Bound, LoadChunk, LoadProgress, StoredChunk
from floodmark.core.window.plan import TableCounts, TablePlan, WindowPlan, WindowState
from floodmark.sync.ports.staging import StagedPart, StagingSink

__all__ = ["Ledger", "OpenedWindow", "Quality", "Source", "StagedRows", "Stager", "TableState", "Warehouse"]


@dataclass(frozen=True, slots=True)
class OpenedWindow:
    """An unfinished window and how far it got."""

    plan: WindowPlan
    state: WindowState


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What the staging of one table moved."""

    read_rows: int
    """Rows of the source."""
    staged_rows: int
    """Rows in staging."""
    parts: tuple[StagedPart, ...] = ()


class Source(Protocol):
    """The control queries. The rows themselves are read by ``floodmark.spark``."""

    def read_snapshot(
        self, tables: Sequence[TableName], instances: Mapping[TableName, str] | None = None,
        positions: Collection[Lsn] = (),
    ) -> SourceSnapshot:  # fmt: skip
        """At most two statements, whatever the number of tables, with constant texts.

        instances: the capture instance to look at, for tables that have pinned one; of the others, the newest.
        positions: what ``SourceSnapshot.entries`` is to tell of.
        """


class Stager(Protocol):
    """Moves rows from the source to staging: reads them, nets changes, and writes them to a sink."""

    def stage_table(self, plan: WindowPlan, index: int, sink: StagingSink) -> StagedRows:
        """Read the changes of table ``index`` of the plan, and net them."""

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        """The keys at which the server cuts table ``index`` for a first load."""

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        """A key that several rows of table ``index`` have at the source, and how many; None: each has its own."""

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        """Read chunks of table ``index``, so many at a time. A chunk's part has its number."""


class Ledger(Protocol):
    """Watermarks and windows. All writes are transactions; the watermark moves by compare-and-set only."""

    def ensure_schema(self) -> None:
        """Make the ledger's tables where they are missing. Safe to run by several at once."""

    def read_tables(self, pipeline: str) -> Mapping[TableName, TableState]: ...

    def unfinished_window(self, pipeline: str, lane: str = "") -> OpenedWindow | None: ...

    def list_unfinished(self, pipeline: str) -> Sequence[OpenedWindow]:
        """On all lanes, the oldest first."""

    def open_window(
        self, pipeline: str, to_lsn: Lsn, tables: Sequence[TablePlan], to_lsn_at: datetime | None = None,
        lane: str = "",
    ) -> WindowPlan:  # fmt: skip
        """Write the plan before any row moves. Raises WatermarkConflictError when a window of the lane is unfinished,
        and WindowBusyError when one of another lane holds a table whose watermark this one is to move.

        to_lsn_at: commit time of to_lsn, server local time.
        """

    def read_window(self, window_id: int) -> OpenedWindow: ...

    def replace_rules(self, window_id: int, rules: Mapping[TableName, tuple[Rule, ...]]) -> WindowPlan:
        """Give a window that is still PLANNED the rules of today's configuration; tables not named keep theirs."""

    def leave_out(self, window_id: int, tables: Collection[TableName]) -> WindowPlan | None:
        """Take tables out of a window that is still PLANNED; their watermarks stay where they are. A load of it that is
        at work can no longer merge. None: nothing was left of the window, and it is gone.
        """

    def hold_load(self, window_id: int) -> AbstractContextManager[None]:
        """For the length of a load: nobody else loads the window, as long as this process lives.

        Raises WindowBusyError when somebody does. A hold that is lost with its connection does no harm: attempts fence
        the loads off from each other all the same.
        """

    def list_chunks(self, window_id: int, source: TableName) -> Sequence[StoredChunk]:
        """Of a first load, by number; [] where none have been planned."""

    def store_chunks(self, plan: WindowPlan, source: TableName, chunks: Sequence[LoadChunk]) -> Sequence[StoredChunk]:
        """Once per window: where there are chunks, those are kept and returned. Refuses an attempt but the latest."""

    def reset_chunks(self, plan: WindowPlan, source: TableName, numbers: Collection[int]) -> None:
        """They are to be read again. Refuses an attempt but the latest."""

    def read_load_progress(self, window_id: int) -> Mapping[TableName, LoadProgress]:
        """Of the tables of a window whose chunks have been planned."""

    def record_gap(self, pipeline: str, gap: Gap, watermark: Lsn | None) -> None:
        """Keep it until a load of the whole table has made up for it. A table has one at a time.

        watermark: of the table when it was seen; where that has moved since, there is no gap any more.
        """

    def list_stopped(self, pipeline: str) -> Sequence[Validity]:
        """The recorded verdicts that are gaps, of tables that are not loaded anew, and have not been since."""

    def begin_load(self, window_id: int) -> OpenedWindow:
        """Start a new attempt at a PLANNED window; whoever holds the plan of an earlier attempt can no longer merge.

        A window that is past PLANNED is returned as it is.
        """

    def record_verdicts(self, pipeline: str, validities: Sequence[Validity]) -> None: ...

    def record_reads(
        self, plan: WindowPlan, read_rows: Mapping[TableName, int], read_finished_at: datetime | None = None,
        read_lsn: Lsn | None = None, read_lsn_at: datetime | None = None,
    ) -> None:  # fmt: skip
        """Rows read per table, before the merge: what ``check`` compares with. A load that was overtaken records none.

        read_finished_at: server local time after which nothing was committed that was read, for the consistency of
        first loads. read_lsn: the newest LSN then, and its commit time.
        """

    def read_counts(self, window_id: int) -> Mapping[TableName, TableCounts]:
        """Of a merged window."""

    def mark_checked(self, window_id: int) -> None: ...

    def advance(self, window_id: int) -> Mapping[TableName, TableCounts]:
        """Move every table's watermark from the planned one to ``to_lsn`` and finish the window, in one transaction.
        A replay, and a reload of some rows, moves none.

        Repeating it is harmless. Raises WatermarkConflictError when a watermark is neither the planned one nor to_lsn.
        """

    def advance_quiet(
        self, pipeline: str, to_lsn: Lsn, watermarks: Mapping[TableName, Lsn], to_lsn_at: datetime | None = None,
        instances: Mapping[TableName, InstanceIdentity] | None = None,
    ) -> None:  # fmt: skip
        """Move watermarks over a stretch of the log that holds no change of these tables, without a window. instances:
        the capture instances that hold none; another one may hold some.

        Raises WatermarkConflictError when a watermark is not the given one, a table has left its capture instance, or a
        window of the main lane is unfinished, and WindowBusyError when a load lane holds one of the tables.
        """


class Warehouse(Protocol):
    """Targets, staging and the merge. Staging tables live in schema ``floodmark_staging``."""

    def prepare_window(self, plan: WindowPlan) -> None:
        """Create or widen the targets, and make the window's staging tables anew (leftovers of a killed load go), but
        for those of first loads, which stay as they are."""

    def sink(self, plan: WindowPlan, index: int) -> StagingSink:
        """Return where workers write the rows of table ``index`` of this attempt.

        A chunk's rows and its state in the ledger are one transaction, which is refused when a later attempt at the
        window has begun.
        """

    def count_chunks(self, plan: WindowPlan, index: int) -> Mapping[int, int]:
        """Rows in staging by number of the chunk, of a first load."""

    def clear_chunks(self, plan: WindowPlan, index: int, numbers: Collection[int]) -> None:
        """Take the rows of chunks out of staging."""

    def merge_window(
        self, plan: WindowPlan, staged_rows: Mapping[TableName, int] | None = None
    ) -> Mapping[TableName, TableCounts]:
        """In one transaction: quarantine, merge every table, store the counts, set the window to MERGED.

        Rows that go to quarantine leave staging, which then holds ``staged_rows - quarantined_rows`` rows.
        staged_rows: what staging reported; WarehouseUnavailableError when the staging tables hold another number (they
        are not logged, and a crash of the warehouse empties them). Raises DataQualityError when a rule with on_failure
        stop is broken (nothing is merged), WatermarkConflictError when the window is no longer PLANNED or another
        load has begun, and DuplicateKeyError about a source table whose key stands twice in staging.
        """

    def drop_duplicates(self, plan: WindowPlan, index: int) -> int:
        """Leave one row of each key in the staging of table ``index``; the number of rows that went."""

    def drop_staging(self, window_id: int) -> None: ...


class Quality(Protocol):
    """The checks between merge and advance."""

    def check_window(self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]) -> None:
        """Raises DataQualityError naming table, expectation and what was seen; writes its report either way."""
