"""``TargetAdoption``: targets that another tool has loaded become those of a pipeline.

Adapter: ``postgres.warehouse.adoption``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from floodmark.core.position import Position
from floodmark.core.source.history import LogEntry
from floodmark.core.window.plan import TablePlan


@dataclass(frozen=True, slots=True)
class RowsAge:
    """How old and how new the rows of a target may be."""

    at: LogEntry
    """Every change up to it is in the rows."""
    read_finished_at: datetime | None
    """The time, local to the source, after which no change was committed that is in the rows."""
    read_lsn: Position | None
    """The newest LSN at that time."""
    read_lsn_at: datetime | None
    """The commit time of read_lsn."""


class TargetAdoption(Protocol):
    """The adoption of existing targets. Each call is one transaction."""

    def check_adoption(self, plan: TablePlan) -> None:
        """Raise ConfigError where the plan's target cannot be adopted, naming all its columns that do not fit.

        plan: of a first load. Values that the target has lost, because a column is missing or too narrow, would be
        missing for good.
        """

    def adopt(self, pipeline: str, plan: TablePlan, age: RowsAge) -> int:
        """Add Floodmark's columns to the plan's target, and set its watermark. Return the window that records it.

        Raises as ``check_adoption``, WatermarkConflictError where the table has a watermark, and WindowBusyError where
        a window of the pipeline holds it. Nothing is written then.
        """
