"""``Metrics``: the receiver of measurements of runs and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from floodmark.core.status.measures import TableMeasure
    from floodmark.core.window.published import AdvanceResult


class Metrics(Protocol):
    """A receiver of measurements. Sending never fails the work that is measured."""

    def are_on(self) -> bool:
        """Return whether the measurements have a receiver. If not, they need not be taken."""

    def send_window(self, result: AdvanceResult, seconds: float | None) -> None:
        """Send the rows of each table of a published window, and how long it took from planning to publication."""

    def send_measures(self, pipeline: str, measures: Iterable[TableMeasure]) -> None:
        """Send the lag and headroom of each table. Unknown values are not sent."""


class NoMetrics:
    """``Metrics`` without a receiver."""

    def are_on(self) -> bool:
        return False

    def send_window(self, result: AdvanceResult, seconds: float | None) -> None:
        """Do nothing."""

    def send_measures(self, pipeline: str, measures: Iterable[TableMeasure]) -> None:
        """Do nothing."""
