"""What a load of a whole table does to a target that has rows: it wins over all of them, and takes away the others.

Nobody else moves the table forward meanwhile, so what the target has is older than the load, or it comes from a past
that the source has forgotten (a restore, a failover): rows, tombstones and quarantined changes with an LSN above the
one at which the load began. Were they left as they are, they would win over what the source does from now on.
"""

from __future__ import annotations

from typing import Any

import psycopg
from sqlglot import exp

from floodmark.core.policies import Deletes
from floodmark.core.window.plan import TablePlan, WindowPlan
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.gate import in_bound
from floodmark.postgres.warehouse.merge import Merge, same_key, table, target


def lower_positions(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan) -> None:
    """Before the merge: what lies above the load, beside the target, comes down to it."""
    for statement in ("lower_tombstones", "lower_quarantine"):
        session.execute(read_sql(statement), _values(plan, planned))


def sweep_target(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge) -> int:
    """After the merge: rows whose keys the load did not see are deleted, as the table says. Returns how many.

    A row that broke a rule and went to quarantine was seen: the target keeps what it has.
    """
    values = _values(plan, planned)
    if planned.deletes is Deletes.HARD:
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
        "target_schema": planned.target.schema, "target_name": planned.target.name,
        "to_lsn": plan.to_lsn.value, "window_id": plan.window_id,
    }  # fmt: skip
