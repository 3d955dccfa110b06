"""The feed of a table that is read by change data capture: a capture instance."""

from __future__ import annotations

from floodmark.core.errors import FloodmarkBugError
from floodmark.core.source.snapshot import CaptureInstance
from floodmark.core.window.plan import TablePlan


def instance_of(plan: TablePlan) -> CaptureInstance:
    """Return the capture instance of a plan. Raises FloodmarkBugError for a plan of another kind of source."""
    if not isinstance(plan.feed, CaptureInstance):
        raise FloodmarkBugError(str(plan.source), f"it is planned for a feed of type {type(plan.feed).__name__}.")
    return plan.feed
