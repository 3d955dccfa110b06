"""``Quarantine``: the rows of a warehouse that broke a rule, and the operator's decisions about them.

Every method raises from ``core.errors``.
"""

from __future__ import annotations

from typing import Protocol

from floodmark.core.recovery.release import Release
from floodmark.core.schema import TableName
from floodmark.core.settings import TableSettings


class Quarantine(Protocol):
    """The quarantine of a warehouse. Each method is one transaction."""

    def release(self, pipeline: str, table: TableSettings, by: str) -> Release:
        """Merge the rows of a table that break no rule any more, by the rules and the policy for texts in ``table``.

        Of each key only the newest row is merged, and only where the target has no later change of it.
        Raises OperatorError for a table that no window has merged, or whose rows belong to members;
        WatermarkConflictError while the table is reloaded; TargetRefusedError for a constraint that Floodmark did not
        create.
        """

    def discard(self, pipeline: str, table: TableName, rule: str | None, by: str) -> int:
        """Settle the rows of a table without a merge. rule: only of this one. Return the number of entries."""
