"""The parts in which the changes of a window are read: a table is one part, which CHANGETABLE cannot cut."""

from __future__ import annotations

import os
from collections.abc import Mapping

from floodmark.core.job_variables import SOURCE_VARIABLE
from floodmark.core.schema import TableName
from floodmark.core.source.scripts import bracket_table
from floodmark.core.version import Version
from floodmark.core.window.plan import WindowPlan
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import connect
from floodmark.sync.ports.reader import TableParts

WHOLE_CHANGES = 50_000
"""The number of changes up to which tables share a task, which holds them in memory."""


def plan_tracking_parts(plan: WindowPlan, most: int) -> Mapping[TableName, TableParts]:
    """Return the part of each table with changes, over the connection that the environment names."""
    return plan_parts(plan, most, SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE]))


def plan_parts(plan: WindowPlan, most: int, source: SqlServerConnection) -> Mapping[TableName, TableParts]:
    """Return the part of each table with changes. ``most`` is not used."""
    tables = [table for table in plan.tables if table.interval is not None and not table.quiet]
    if not tables:
        return {}
    counts = [
        f"SELECT {number} AS number, COUNT(*) AS changes FROM (SELECT TOP ({WHOLE_CHANGES + 1}) 1 AS one"  # noqa: S608
        f" FROM CHANGETABLE(CHANGES {bracket_table(table.feed.table.name)}, ?) AS c) AS counted"
        for number, table in enumerate(tables)
    ]
    after = [table.interval.after_lsn for table in tables if table.interval is not None]
    parameters = tuple(version.number for version in after if isinstance(version, Version))
    with connect(source, subject=plan.pipeline) as session:
        session.limit_lock_waits()
        changes = dict(session.fetch(" UNION ALL ".join(counts), parameters))
    return {
        table.source: TableParts([table.interval], changes[number] if changes[number] <= WHOLE_CHANGES else None)
        for number, table in enumerate(tables)
        if table.interval is not None
    }
