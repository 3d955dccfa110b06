"""The parts in which the changes of a window are read: a table of the fleet is one part.

Nothing is counted: whether a device has changes is known when its file has been opened, and then it is read.
"""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.core.schema import TableName
from floodmark.core.window.plan import WindowPlan
from floodmark.sync.ports.reader import TableParts


def plan_compact_parts(plan: WindowPlan, most: int) -> Mapping[TableName, TableParts]:
    """Return the part of each table. ``most`` is not used."""
    return {table.source: TableParts([table.interval]) for table in plan.tables if table.interval is not None}
