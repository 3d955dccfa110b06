"""The names of staging tables, shared by writers, merge and checks."""

from __future__ import annotations

import hashlib

from floodmark.core.naming import STAGING_SCHEMA
from floodmark.core.schema import TableName
from floodmark.core.window.plan import LoadKind, WindowPlan


def staging_table(plan: WindowPlan, index: int) -> TableName:
    """Return the staging table of table ``index`` of the plan.

    Changes have tables of their own in each attempt: a load that was assumed dead cannot write into those of its
    successor. The chunks of a first load outlast the attempts, and are fenced one by one. The name does not depend on
    the other tables of the plan: one may leave it while the others are staged.
    """
    prefix = staging_prefix(plan.window_id)
    table = plan.tables[index]
    own = "load" if table.kind is LoadKind.FIRST_LOAD else plan.attempt
    return TableName(STAGING_SCHEMA, f"{prefix}{own}_{hashlib.sha256(str(table.source).encode()).hexdigest()[:16]}")


def staging_prefix(window_id: int) -> str:
    """Return the prefix of the names of all staging tables of a window."""
    return f"w{window_id}_"
