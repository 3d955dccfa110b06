"""The plan of one run: one window ``(after, to]`` per table with one ``to`` for all, or a first load up to ``to``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from floodmark.core.interval import Interval
from floodmark.core.lsn import Lsn
from floodmark.core.policies import Deletes, NetSource, Rule, TemporalPolicy
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import CaptureInstance
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
    """What one table does in the window.

    interval None for a first load, whose rows are stamped with ``WindowPlan.to_lsn``.
    watermark: the expected one, for compare-and-set; None before the first load.
    instance.table.key: the key to merge by, be it the server's or the declared one.
    partitions: into how many statements a window is cut, 0 to let the reader choose.
    quiet: the change table was seen to hold nothing in the interval, so that nothing needs to be read.
    first_load_parallel_reads: how many chunks of a first load are read from the source at a time.
    is_reload: a first load over a target that has rows; those that the source has no more are swept after the merge.
    where: a condition in T-SQL; only rows for which it is true are loaded, nothing is swept, no watermark moves.
    """

    source: TableName
    target: TableName
    kind: LoadKind
    instance: CaptureInstance
    interval: Interval | None
    watermark: Lsn | None
    deletes: Deletes
    net: NetSource
    temporal: TemporalPolicy
    rules: tuple[Rule, ...] = ()
    partitions: int = 0
    first_load_chunk_rows: int = 500_000
    quiet: bool = False
    first_load_parallel_reads: int = 4
    is_reload: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """One window of one pipeline. ``window_id`` is given by the ledger and grows.

    attempt: how many loads of the window have begun; a load works on the plan that ``Ledger.begin_load`` returned.
    lane: see ``core.lane``; "" is the main one. to_lsn_at: commit time of to_lsn, local time of the source; None where
    nobody asked.
    """

    window_id: int
    pipeline: str
    to_lsn: Lsn
    tables: tuple[TablePlan, ...]
    attempt: int = 0
    lane: str = ""
    to_lsn_at: datetime | None = None

    def moves_watermark(self, table: TablePlan) -> bool:
        """Whether the table's watermark stands at ``to_lsn`` when the window has been published."""
        return not is_replay_lane(self.lane) and not table.where


@dataclass(frozen=True, slots=True)
class TableCounts:
    """What one table's load did, in rows.

    read: change rows (or table rows in a first load) that came from the source. staged: rows after net changes.
    Of the staged ones, inserted: keys that came to life; updated: living rows replaced; deleted: living rows that died;
    quarantined: rows set aside by a rule; unchanged: the rest (the target had the row at the same or a higher LSN, or a
    deleted key was not there). staged = inserted + updated + deleted + quarantined + unchanged.
    warned: rows that break a rule which only warns, merged all the same.
    swept: rows of the target that a reload did not find at the source any more.
    """

    read_rows: int = 0
    staged_rows: int = 0
    inserted_rows: int = 0
    updated_rows: int = 0
    deleted_rows: int = 0
    unchanged_rows: int = 0
    quarantined_rows: int = 0
    warned_rows: int = 0
    swept_rows: int = 0
