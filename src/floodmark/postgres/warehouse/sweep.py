"""The sweep of a load of a whole table: its rows win over all rows of the target, and rows it did not read are deleted.

No other load moves the table forward meanwhile. So the target's rows are older than the load, or they come from a past
that the source no longer has (after a restore or a failover): rows, tombstones and quarantined changes with an LSN
above the one at which the load started. Unless their LSN is lowered, they would win over the source's later changes.
"""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from sqlglot import exp

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
    deleted where the source may hide rows.
    """
    values = _values(plan, planned)
    swept = 0
    if planned.keeps_unread:
        _LOG.warning("%s: a security policy may hide rows at the source, so no row is swept.", planned.source)
    elif planned.deletes is Deletes.HARD:
        session.execute(_filled("write_swept_tombstones", merge), values)
        swept = session.execute(_filled("sweep_hard", merge), values).rowcount
    else:
        swept = session.execute(_filled("sweep_soft", merge), values).rowcount
    session.execute(_filled("lower_rows", merge), values)
    return swept


def _filled(statement: str, merge: Merge) -> str:
    key = exp.func("JSONB_BUILD_ARRAY", *(target(name) for name in merge.key))
    return read_sql(statement).format(
        target=in_bound(table(merge.target, "t")),
        staging=in_bound(table(merge.staging, "s")),
        same_key=in_bound(same_key(merge)),
        key=in_bound(key),
    )


def _values(plan: WindowPlan, planned: TablePlan) -> dict[str, Any]:
    return {
        "target_schema": planned.target.schema,
        "target_name": planned.target.name,
        "to_lsn": plan.to_lsn.value,
        "window_id": plan.window_id,
    }
