"""The measures of the source when a window was planned, for the history of the window's tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import SourceSnapshot
from floodmark.core.source.state import TableState


@dataclass(frozen=True, slots=True)
class PlanMeasures:
    """The measures of a plan."""

    lag_seconds: float | None = None
    """The age of the end of the window; None where it is unknown or no watermark will move."""
    margin_seconds: Mapping[TableName, float] = field(default_factory=dict)
    """From the low end of the validity interval to the watermark, for tables where both times are known."""


NO_MEASURES = PlanMeasures()


def measure_plan(snapshot: SourceSnapshot, states: Mapping[TableName, TableState] | None = None) -> PlanMeasures:
    """Return the measures of a plan that ends where the snapshot does. states: of the tables that go on from there.

    Where a transaction records its changes itself, the end is as new as the snapshot.
    """
    margins = {}
    for table in snapshot.tables:
        state = (states or {}).get(table.table)
        if state and state.watermark_at and table.min_lsn_at:
            margins[table.table] = max((state.watermark_at - table.min_lsn_at).total_seconds(), 0.0)
    return PlanMeasures(0.0 if snapshot.is_synchronous else snapshot.seconds_behind, margins)
