"""``RowComparer``: the comparison of a source table with its target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.core.status.verification import TableVerification
    from floodmark.core.window.plan import TablePlan

DEFAULT_LISTED_KEYS = 20


class RowComparer(Protocol):
    """Compares values by the warehouse's own rules, in no order."""

    def compare_rows(
        self, table: TablePlan, batches: Iterable[pa.RecordBatch], listed_keys: int = DEFAULT_LISTED_KEYS
    ) -> TableVerification:
        """Compare all rows of a source table with its target.

        batches: the stored columns. Raises from ``core.errors``; OperatorError for a table that has not been loaded.
        """
