"""The sweep of a load of a whole table: its rows win over all rows of the target, and rows it did not read are deleted.

No other load moves the table forward meanwhile. So the target's rows are older than the load, or they come from a past
that the source no longer has (after a restore or a failover): rows, tombstones and quarantined changes with an LSN
above the one at which the load started. Unless their LSN is lowered, they would win over the source's later changes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from sqlglot import exp

from floodmark.core.naming import quote
from floodmark.core.policies import Deletes
from floodmark.core.window.plan import TablePlan, WindowPlan
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.gate import in_bound
from floodmark.postgres.warehouse.merge import Merge, same_key, table, target

_LOG = logging.getLogger(__name__)


def lower_positions(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan) -> None:
    """Lower tombstones and quarantined changes above the load to its LSN. Runs before the merge."""
    for statement in ("lower_tombstones", "lower_quarantine"):
        session.execute(read_sql(statement), _values(plan, planned))


def sweep_target(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge) -> int:
    """Delete rows whose keys the load did not read, in the way that the table sets. Return their number.

    Runs after the merge. A row that broke a rule and went to quarantine was read: the target keeps its row. Nothing is
    deleted where rows may be at the source that were not read.
    """
    values = _values(plan, planned)
    swept = 0
    if planned.keeps_unread:
        _LOG.warning("%s: the source may have rows that this load does not see, so no row is swept.", planned.source)
    else:
        swept = _sweep(session, planned, merge, values, "TRUE")
    session.execute(_filled("lower_rows", merge, "TRUE"), values)
    return swept


def sweep_members(
    session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge, members: Sequence[str]
) -> int:
    """Delete rows of members that were read as a whole, and were not found there. Return their number."""
    swept = f"t.{quote(planned.feed.member_column)} = ANY (%(members)s)"
    return _sweep(session, planned, merge, _values(plan, planned) | {"members": list(members)}, swept)


def _sweep(session: psycopg.Connection, planned: TablePlan, merge: Merge, values: Mapping[str, Any], swept: str) -> int:
    """Sweep the rows for which the condition ``swept`` is true. Return their number."""
    if planned.deletes is Deletes.SOFT:
        return session.execute(_filled("sweep_soft", merge, swept), values).rowcount
    session.execute(_filled("write_swept_tombstones", merge, swept), values)
    return session.execute(_filled("sweep_hard", merge, swept), values).rowcount


def _filled(statement: str, merge: Merge, swept: str) -> str:
    key = exp.func("JSONB_BUILD_ARRAY", *(target(name) for name in merge.key))
    return read_sql(statement).format(
        swept=swept,
        target=in_bound(table(merge.target, "t")),
        staging=in_bound(table(merge.staging, "s")),
        same_key=in_bound(same_key(merge)),
        key=in_bound(key),
    )


def _values(plan: WindowPlan, planned: TablePlan) -> dict[str, Any]:
    return {
        "target_schema": planned.target.schema,
        "target_name": planned.target.name,
        "to_lsn": plan.rows_at(planned),
        "window_id": plan.window_id,
    }
