"""The ledger: what is known of windows and watermarks. One port per caller's need; ``Ledger`` is all of them.

All writes are transactions. Every method raises from ``core.errors``.
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
from floodmark.core.source.snapshot import InstanceIdentity, Validity
from floodmark.core.source.state import TableState
from floodmark.core.window.chunks import LoadChunk, LoadProgress, StoredChunk
from floodmark.core.window.plan import TableCounts, TablePlan, WindowPlan, WindowState
from floodmark.sync.ports.staging import StagedPart


@dataclass(frozen=True, slots=True)
class OpenedWindow:
    """An unfinished window and how far it got."""

    plan: WindowPlan
    state: WindowState


class Windows(Protocol):
    """The plans of windows."""

    def open_window(
        self, pipeline: str, to_lsn: Lsn, tables: Sequence[TablePlan], to_lsn_at: datetime | None = None,
        lane: str = "",
    ) -> WindowPlan:  # fmt: skip
        """Write the plan before any row moves. Raises WatermarkConflictError when a window of the lane is unfinished,
        and WindowBusyError when one of another lane holds a table whose watermark this one is to move.

        to_lsn_at: commit time of to_lsn, server local time.
        """

    def unfinished_window(self, pipeline: str, lane: str = "") -> OpenedWindow | None: ...

    def list_unfinished(self, pipeline: str) -> Sequence[OpenedWindow]:
        """On all lanes, the oldest first."""

    def read_window(self, window_id: int) -> OpenedWindow: ...

    def leave_out(self, window_id: int, tables: Collection[TableName]) -> WindowPlan | None:
        """Take tables out of a window that is still PLANNED; their watermarks stay where they are. A load of it that is
        at work can no longer merge. None: nothing was left of the window, and it is gone.
        """

    def replace_rules(self, window_id: int, rules: Mapping[TableName, tuple[Rule, ...]]) -> WindowPlan:
        """Give a window that is still PLANNED the rules of today's configuration; tables not named keep theirs."""


class Loads(Protocol):
    """The attempts at a window, and what they did."""

    def hold_load(self, window_id: int) -> AbstractContextManager[None]:
        """For the length of a load: nobody else loads the window, as long as this process lives.

        Raises WindowBusyError when somebody does. A hold that is lost with its connection does no harm: attempts fence
        the loads off from each other all the same.
        """

    def begin_load(self, window_id: int) -> OpenedWindow:
        """Start a new attempt at a PLANNED window; whoever holds the plan of an earlier attempt can no longer merge.

        A window that is past PLANNED is returned as it is.
        """

    def record_reads(
        self, plan: WindowPlan, read_rows: Mapping[TableName, int], read_finished_at: datetime | None = None,
        read_lsn: Lsn | None = None, read_lsn_at: datetime | None = None,
    ) -> None:  # fmt: skip
        """Rows read per table, before the merge: what ``check`` compares with. A load that was overtaken records none.

        read_finished_at: server local time after which nothing was committed that was read, for the consistency of
        first loads. read_lsn: the newest LSN then, and its commit time.
        """

    def record_merge(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, TableCounts]:
        """Set a window to MERGED, with its counts, where the warehouse has not done so itself. Return the counts with
        what the ledger knows of the read. Refuses an attempt but the latest.
        """

    def read_counts(self, window_id: int) -> Mapping[TableName, TableCounts]:
        """Of a merged window."""


class Chunks(Protocol):
    """The chunks of first loads, which outlast attempts."""

    def list_chunks(self, window_id: int, source: TableName) -> Sequence[StoredChunk]:
        """Of a first load, by number; [] where none have been planned."""

    def store_chunks(self, plan: WindowPlan, source: TableName, chunks: Sequence[LoadChunk]) -> Sequence[StoredChunk]:
        """Once per window: where there are chunks, those are kept and returned. Refuses an attempt but the latest."""

    def record_staged(self, plan: WindowPlan, source: TableName, parts: Sequence[StagedPart]) -> None:
        """Record chunks that are in staging, where the warehouse has not done so itself. Refuses an attempt but the
        latest."""

    def reset_chunks(self, plan: WindowPlan, source: TableName, numbers: Collection[int]) -> None:
        """They are to be read again. Refuses an attempt but the latest."""

    def read_load_progress(self, window_id: int) -> Mapping[TableName, LoadProgress]:
        """Of the tables of a window whose chunks have been planned."""


class Watermarks(Protocol):
    """How far each table is complete. A watermark moves by compare-and-set only."""

    def ensure_schema(self) -> None:
        """Make the ledger's tables where they are missing. Safe to run by several at once."""

    def read_tables(self, pipeline: str) -> Mapping[TableName, TableState]: ...

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


class Verdicts(Protocol):
    """What runs found of each table, and the gaps that a load has still to make up for."""

    def record_verdicts(self, pipeline: str, validities: Sequence[Validity]) -> None: ...

    def record_gap(self, pipeline: str, gap: Gap, watermark: Lsn | None) -> None:
        """Keep it until a load of the whole table has made up for it. A table has one at a time.

        watermark: of the table when it was seen; where that has moved since, there is no gap any more.
        """

    def list_stopped(self, pipeline: str) -> Sequence[Validity]:
        """The recorded verdicts that are gaps, of tables that are not loaded anew, and have not been since."""


class Ledger(Windows, Loads, Chunks, Watermarks, Verdicts, Protocol):
    """All of it."""
