"""``Warehouse``: targets, staging, the merge and the publication of a window.

Every method raises from ``core.errors``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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
    """What a kind of warehouse can do."""

    publishes: Literal["at_merge", "at_advance"]
    """When the rows of a window become visible."""
    tables_at_once: bool
    """Whether all tables of a window become visible together."""
    has_primary_key: bool
    """Whether the target refuses a key twice. Without one, the merge itself refuses a key that is twice in staging."""
    shares_ledger: bool
    """Whether staging and merge are written in one transaction with the ledger. If not, the load records them."""


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """What is checked of a table of a merged window."""

    target: TableName
    staged: TableName | None
    """Where its staged rows are; None where they are gone, so that the target is checked by itself."""


class Staging(Protocol):
    """The staging tables of a window."""

    def prepare_window(self, plan: WindowPlan) -> None:
        """Create or widen the targets, and make the window's staging tables anew (leftovers of a killed load go), but
        for those of first loads, which stay as they are."""

    def sink(self, plan: WindowPlan, index: int) -> StagingSink:
        """Return where workers write the rows of table ``index`` of this attempt.

        A chunk's rows and its state in the ledger are one transaction, which is refused when a later attempt at the
        window has begun.
        """

    def count_parts(self, plan: WindowPlan, index: int) -> Mapping[int, int]:
        """Return the rows in staging by number of the part, of a first load."""

    def clear_parts(self, plan: WindowPlan, index: int, numbers: Collection[int]) -> None:
        """Take the rows of parts out of staging."""

    def drop_duplicates(self, plan: WindowPlan, index: int) -> int:
        """Leave one row of each key in the staging of table ``index``; the number of rows that went."""

    def drop_staging(self, window_id: int) -> None: ...


class Merging(Protocol):
    """The tables that readers see."""

    @property
    def traits(self) -> WarehouseTraits: ...

    def merge_window(
        self, plan: WindowPlan, staged: Mapping[TableName, StagedRows] | None = None
    ) -> Mapping[TableName, TableCounts]:
        """In one transaction: quarantine, merge every table, store the counts, set the window to MERGED.

        Rows that go to quarantine leave staging, which then holds ``staged_rows - quarantined_rows`` rows.
        staged_rows: what staging reported; WarehouseUnavailableError when the staging tables hold another number (they
        are not logged, and a crash of the warehouse empties them). Raises DataQualityError when a rule with on_failure
        stop is broken (nothing is merged), WatermarkConflictError when the window is no longer PLANNED or another
        load has begun, and DuplicateKeyError about a source table whose key stands twice in staging.
        """

    def open_rows(self, plan: WindowPlan, index: int, counts: TableCounts) -> CheckedRows:
        """Return what ``check`` reads of table ``index`` of a merged window. counts: those of its merge."""

    def publish_window(self, plan: WindowPlan) -> None:
        """Make a checked window visible. Repeatable. Does nothing where the merge published it (``traits``)."""


class Warehouse(Staging, Merging, Protocol):
    """All that a run asks of a warehouse."""


class RowComparer(Protocol):
    """Compares values by the warehouse's own rules, in no order."""

    def compare_rows(
        self, table: TablePlan, batches: Iterable[pa.RecordBatch], listed_keys: int = DEFAULT_LISTED_KEYS
    ) -> TableVerification:
        """Compare all rows of a source table with its target.

        batches: the stored columns. Raises from ``core.errors``; OperatorError for a table that has not been loaded.
        """
