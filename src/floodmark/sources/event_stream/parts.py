"""The parts in which the changes of a window are read: a table of a stream is one part.

Segments of an event may be in several partitions, and one task joins them.
"""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.core.schema import TableName
from floodmark.core.window.plan import WindowPlan
from floodmark.sync.ports.reader import TableParts


def plan_event_parts(plan: WindowPlan, most: int) -> Mapping[TableName, TableParts]:
    """Return the part of each table. ``most`` is not used."""
    return {table.source: TableParts([table.interval]) for table in plan.tables if table.interval is not None}
