"""The plan of one run: one window ``(after, to]`` per table with one ``to`` for all, or a first load up to ``to``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from floodmark.core.interval import Interval
from floodmark.core.policies import Deletes, NetSource, Rule, TemporalPolicy, UnstorablePolicy
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import DEFAULT_LOB_BATCH_BYTES, DEFAULT_MAX_READS
from floodmark.core.source.feed import Feed, MemberMark
from floodmark.core.source.history import LogEntry
from floodmark.core.window.lane import is_replay_lane


class LoadKind(Enum):
    """How a table's rows are read in this window."""

    FIRST_LOAD = "first_load"
    CHANGES = "changes"


class WindowState(Enum):
    """A window's way through the ledger. Each step is written in the transaction that does the work it names."""

    PLANNED = "planned"
    MERGED = "merged"
    CHECKED = "checked"
    ADVANCED = "advanced"
    """The watermarks stand at ``to_lsn``: the window is finished."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The part of one table in the window."""

    source: TableName
    target: TableName
    kind: LoadKind
    feed: Feed
    """What the changes are read from. ``feed.table.key`` is the key to merge by, the server's or a declared one."""
    interval: Interval | None
    """None for a first load, whose rows are stamped with ``WindowPlan.to_lsn``."""
    watermark: Position | None
    """The expected one, for compare-and-set; None before the first load."""
    deletes: Deletes
    net: NetSource
    temporal: TemporalPolicy
    rules: tuple[Rule, ...] = ()
    partitions: int = 0
    """How many statements a window is cut into, 0 to let the reader choose."""
    first_load_chunk_rows: int = 500_000
    quiet: bool = False
    """Whether the change table held nothing in the interval, so that nothing needs to be read."""
    first_load_parallel_reads: int = 4
    """How many chunks of a first load are read from the source at a time."""
    max_reads: int = DEFAULT_MAX_READS
    """How many statements of the load read the source at a time, for all of its tables."""
    is_reload: bool = False
    """A first load over a target that has rows: those that the source no longer has are swept after the merge."""
    keeps_unread: bool = False
    """The source may hide rows from the login that it still has: a reload deletes nothing."""
    where: str = ""
    """A condition in T-SQL: only rows for which it is true are loaded, nothing is swept, no watermark moves."""
    lob_batch_bytes: int = DEFAULT_LOB_BATCH_BYTES
    """The bytes at which a batch of rows with LOBs ends."""
    unstorable: UnstorablePolicy = UnstorablePolicy.QUARANTINE
    """What is done with a text that the warehouse cannot store."""
    reloads_members: bool = False
    """A member whose changes cannot be read after its mark is read as a whole, and not left out."""
    ends: tuple[MemberMark, ...] = ()
    """Where the window ends in each member; none for a feed whose members are read as far as they go."""
    rows_at: bytes | None = None
    """The position of the rows of a first load, where it is not the end of the window."""
    marks: tuple[MemberMark, ...] = ()
    """The marks of a feed's members. The ledger adds them when a load begins; they are no part of the stored plan."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """One window of one pipeline.

    A load may read a newer state than was planned, and then moves the end there (``extended_to``).
    """

    window_id: int
    """Given by the ledger; it grows."""
    pipeline: str
    to_lsn: Position
    tables: tuple[TablePlan, ...]
    attempt: int = 0
    """How many loads of the window have begun. A load works on the plan that ``Loads.begin_load`` returned."""
    lane: str = ""
    """See ``core.window.lane``; "" is the main one."""
    to_lsn_at: datetime | None = None
    """The commit time of to_lsn, local time of the source; None where it was not asked for."""

    @property
    def end(self) -> LogEntry:
        """Return the entry of the log at which the window ends. Every copy of the source that is read must have it."""
        return LogEntry(self.to_lsn, self.to_lsn_at)

    def extended_to(self, end: LogEntry) -> WindowPlan:
        """Return the plan with a later end, up to which no table is known to be quiet.

        Raises ValueError for an earlier one, or for a window with a first load.
        """
        if end.lsn < self.to_lsn or any(table.interval is None for table in self.tables):
            raise ValueError(f"window {self.window_id} cannot end at {end.lsn}")
        tables = tuple(
            replace(table, interval=Interval(table.interval.after_lsn, end.lsn), quiet=False)
            for table in self.tables
            if table.interval is not None
        )
        return replace(self, to_lsn=end.lsn, to_lsn_at=end.committed_at, tables=tables)

    def rows_at(self, table: TablePlan) -> bytes:
        """Return the position of the rows of a load of the whole table."""
        return table.rows_at or self.to_lsn.value

    def moves_watermark(self, table: TablePlan) -> bool:
        """Return whether the table's watermark is ``to_lsn`` when the window has been published."""
        return not is_replay_lane(self.lane) and not table.where


@dataclass(frozen=True, slots=True)
class TableCounts:
    """The rows that one table's load moved: staged = inserted + updated + deleted + quarantined + unchanged."""

    read_rows: int = 0
    """Change rows that came from the source; in a first load, rows of the table."""
    staged_rows: int = 0
    """Rows after net changes."""
    inserted_rows: int = 0
    """Staged rows whose keys came to life in the target."""
    updated_rows: int = 0
    """Staged rows that replaced living rows of the target."""
    deleted_rows: int = 0
    """Staged rows that ended living rows of the target."""
    unchanged_rows: int = 0
    """Staged rows that changed nothing: the target had the row at the same or a higher position, or a deleted key was
    not there."""
    quarantined_rows: int = 0
    """Staged rows that a rule set aside."""
    warned_rows: int = 0
    """Rows that break a rule which only warns; they are merged all the same."""
    swept_rows: int = 0
    """Rows of the target that a reload did not find at the source any more."""
