"""``Quality``: the checks between merge and advance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from floodmark.core.errors import FloodmarkError
from floodmark.core.schema import TableName
from floodmark.core.window.plan import TableCounts, WindowPlan


class Quality(Protocol):
    """The checks between merge and advance."""

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        """Check a merged window, and write the report in any case.

        Return, by source table, the error about each table that fails: DataQualityError with expectations and results,
        or the error about a check that cannot be evaluated.
        """
