"""What the story of a run needs from the outside. Adapters: ``sqlserver.source``, ``ledger.postgres``,
``warehouse.postgres``, ``quality.great_expectations``; every method raises from ``core.errors``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from floodmark.core.capture import InstanceIdentity, SourceSnapshot, Validity
from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.window import TableCounts, TablePlan, WindowPlan, WindowState


@dataclass(frozen=True, slots=True)
class TableState:
    """What the ledger knows of a table of a pipeline. ``watermark`` None: the first load has not been published.

    consistent: a window whose end was committed after the first load's read has been merged.
    """

    source: TableName
    watermark: Lsn | None
    identity: InstanceIdentity | None
    consistent: bool


@dataclass(frozen=True, slots=True)
class OpenedWindow:
    """An unfinished window and how far it got."""

    plan: WindowPlan
    state: WindowState


class Source(Protocol):
    """The control queries. The rows themselves are read by ``floodmark.spark``."""

    def read_snapshot(self, tables: Sequence[TableName]) -> SourceSnapshot:
        """At most two statements, whatever the number of tables, with constant texts."""


class Ledger(Protocol):
    """Watermarks and windows. All writes are transactions; the watermark moves by compare-and-set only."""

    def ensure_schema(self) -> None: ...

    def read_tables(self, pipeline: str) -> Mapping[TableName, TableState]: ...

    def unfinished_window(self, pipeline: str) -> OpenedWindow | None: ...

    def open_window(self, pipeline: str, to_lsn: Lsn, tables: Sequence[TablePlan]) -> WindowPlan:
        """Write the plan before any row moves. Raises WatermarkConflictError when another window is unfinished."""

    def read_window(self, window_id: int) -> OpenedWindow: ...

    def record_verdicts(self, pipeline: str, validities: Sequence[Validity]) -> None: ...

    def record_reads(self, window_id: int, read_rows: Mapping[TableName, int]) -> None:
        """Rows read per table, before the merge: what ``check`` compares with."""

    def mark_checked(self, window_id: int) -> None: ...

    def advance(self, window_id: int) -> Mapping[TableName, TableCounts]:
        """Move every table's watermark from the planned one to ``to_lsn`` and finish the window, in one transaction.

        Repeating it is harmless. Raises WatermarkConflictError when a watermark is neither the planned one nor to_lsn.
        """


class Warehouse(Protocol):
    """Targets, staging and the merge. Staging tables live in schema ``floodmark_staging``."""

    def prepare_window(self, plan: WindowPlan) -> None:
        """Create or widen the targets, and make the window's staging tables anew (leftovers of a killed load go)."""

    def merge_window(self, plan: WindowPlan) -> Mapping[TableName, TableCounts]:
        """In one transaction: quarantine, merge every table, store the counts, set the window to MERGED.

        Raises DataQualityError when a rule with on_failure stop is broken (nothing is merged), and
        WatermarkConflictError when the window is no longer PLANNED.
        """

    def drop_staging(self, window_id: int) -> None: ...


class Quality(Protocol):
    """The checks between merge and advance."""

    def check_window(self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]) -> None:
        """Raises DataQualityError naming table, expectation and what was seen; writes its report either way."""
