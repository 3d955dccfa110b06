"""The names of staging tables, shared by writers, merge and checks."""

from __future__ import annotations

import hashlib

from floodmark.core.naming import STAGING_SCHEMA
from floodmark.core.schema import TableName
from floodmark.core.window.plan import LoadKind, WindowPlan


def staging_table(plan: WindowPlan, index: int) -> TableName:
    """Return the staging table of table ``index`` of the plan.

    Changes have tables of their own in each attempt: a load that was assumed dead cannot write into those of its
    successor. The chunks of a first load outlast the attempts, and are fenced one by one; the name does not depend on
    the other tables of the plan.
    """
    prefix = staging_prefix(plan.window_id)
    table = plan.tables[index]
    if table.kind is LoadKind.FIRST_LOAD:
        return TableName(STAGING_SCHEMA, f"{prefix}load_{hashlib.sha256(str(table.source).encode()).hexdigest()[:16]}")
    return TableName(STAGING_SCHEMA, f"{prefix}{plan.attempt}_{index}")


def staging_prefix(window_id: int) -> str:
    """Return the prefix of the names of all staging tables of a window."""
    return f"w{window_id}_"
