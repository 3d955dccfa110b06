"""Plans of tables with other settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from floodmark.core.plan import TablePlan


def with_settings(planned: TablePlan, **changed: Any) -> TablePlan:
    """Return the plan of a table with some of its settings changed."""
    return replace(planned, settings=replace(planned.settings, **changed))
