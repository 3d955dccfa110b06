"""``Warehouse``: targets, staging, the merge and the publication of a window.

Every method raises from ``core.errors``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from floodmark.core.schema import TableName
from floodmark.core.window.plan import TableCounts, TablePlan, WindowPlan
from floodmark.sync.ports.stager import StagedRows
from floodmark.sync.ports.staging import StagingSink

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.core.status.verification import TableVerification

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


class Staging(Protocol):
    """The staging tables of a window."""

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
        """Remove the rows of parts from staging."""

    def drop_duplicates(self, plan: WindowPlan, index: int) -> int:
        """Keep one row per key in the staging of table ``index``. Return the number of removed rows."""

    def drop_staging(self, window_id: int) -> None:
        """Drop the staging tables of a window."""


class Merging(Protocol):
    """The tables that readers see."""

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

    def publish_window(self, plan: WindowPlan) -> None:
        """Make a checked window visible. Repeatable. Does nothing where the merge published it (``traits``)."""


class Warehouse(Staging, Merging, Protocol):
    """All that a run needs of a warehouse."""


class RowComparer(Protocol):
    """A comparison of values by the warehouse's own rules, in no order."""

    def compare_rows(
        self, table: TablePlan, batches: Iterable[pa.RecordBatch], listed_keys: int = DEFAULT_LISTED_KEYS
    ) -> TableVerification:
        """Compare all rows of a source table with its target.

        batches: the stored columns; they are read until their end before the comparison begins. Raises from
        ``core.errors``; OperatorError for a table that has not been loaded.
        """

    def estimate_rows(self, table: TablePlan) -> int | None:
        """Return about how many rows the target of a table has, from statistics; None where there are none."""
