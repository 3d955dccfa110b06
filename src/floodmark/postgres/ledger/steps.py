"""The first and the last step of a window in the ledger, each in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg.types.json import Jsonb

from floodmark.core.errors import WatermarkConflictError
from floodmark.core.position import Position
from floodmark.core.source.history import LogEntry
from floodmark.core.window.lane import is_load_lane, is_replay_lane
from floodmark.core.window.measures import NO_MEASURES, PlanMeasures
from floodmark.core.window.plan import TablePlan, WindowPlan
from floodmark.core.window.plan_json import plan_to_json
from floodmark.postgres.ledger.claims import (
    claim_table,
    describe_watermark,
    refuse_left_instances,
    refuse_loads,
    refuse_other_lanes,
)
from floodmark.postgres.ledger.members import advance_members
from floodmark.postgres.sql import read_sql
from floodmark.postgres.statements import query, source_parameters


def insert_window(
    session: psycopg.Connection,
    pipeline: str,
    lane: str,
    end: LogEntry,
    tables: Sequence[TablePlan],
    *,
    measures: PlanMeasures = NO_MEASURES,
) -> WindowPlan:
    """Claim the tables and write the plan of a new window. Raises as ``sync.ports.ledger.Windows.open_window``."""
    # All runs lock tables in the same order, so that two runs queue up instead of deadlocking.
    for table in sorted(tables, key=lambda table: table.source):
        claim_table(session, pipeline, table)
    refuse_left_instances(session, pipeline, {table.source: table.feed.identity for table in tables})
    refuse = refuse_loads if is_replay_lane(lane) else refuse_other_lanes
    refuse(session, pipeline, lane, [table.source for table in tables])
    window_id = _insert_window(session, pipeline, lane, end, measures.lag_seconds)
    plan = WindowPlan(window_id, pipeline, end.lsn, tuple(tables), lane=lane, to_lsn_at=end.committed_at)
    query(session, "store_plan", window_id=window_id, plan=Jsonb(plan_to_json(plan)))
    for table in tables:
        query(
            session,
            "open_window_table",
            window_id=window_id,
            **source_parameters(table.source),
            kind=table.kind.value,
            after_lsn=_bytes(table.interval.after_lsn if table.interval else None),
            margin_seconds=measures.margin_seconds.get(table.source),
        )
    return plan


def finish_table(session: psycopg.Connection, plan: WindowPlan, table: TablePlan) -> None:
    """Move the watermark of a table of a checked window, where the window moves it.

    Raises WatermarkConflictError where it is neither the planned one nor the end of the window.
    """
    named = {"pipeline": plan.pipeline, "window_id": plan.window_id, **source_parameters(table.source)}
    if plan.moves_watermark(table):
        _advance_table(session, plan, table)
        if is_load_lane(plan.lane):
            query(session, "close_gap", **named)
    elif table.where:
        query(session, "settle_table", **named)


def _insert_window(
    session: psycopg.Connection, pipeline: str, lane: str, end: LogEntry, lag_seconds: float | None
) -> int:
    named = {"to_lsn": end.lsn.value, "to_lsn_at": end.committed_at, "lag_seconds": lag_seconds}
    try:
        row = query(session, "open_window", pipeline=pipeline, lane=lane, **named)[0]
    except psycopg.errors.UniqueViolation:
        raise WatermarkConflictError(
            pipeline, "another run has an unfinished window.", "Let it finish; the next run continues with that window."
        ) from None
    return int(row["window_id"])


def _advance_table(session: psycopg.Connection, plan: WindowPlan, table: TablePlan) -> None:
    identity = table.feed.identity
    moved = session.execute(
        read_sql("advance_table"),
        {
            "window_id": plan.window_id,
            **source_parameters(table.source),
            "watermark": _bytes(table.watermark),
            "instance_name": identity.name,
            "instance_object_id": identity.object_id,
            "instance_created_at": identity.created_at,
            "instance_store_id": identity.store_id,
        },
    )
    if moved.rowcount == 1:
        if table.feed.has_members:
            advance_members(session, plan, table)
        return
    found = query(session, "lock_table", pipeline=plan.pipeline, **source_parameters(table.source))
    if not found or found[0]["watermark"] != plan.to_lsn.value:
        raise WatermarkConflictError(
            str(table.source),
            f"its watermark is {describe_watermark(found[0]['watermark'] if found else None)}; "
            f"window {plan.window_id} was planned on {table.watermark or 'none'}.",
            "No watermark was moved. Find out what else writes to the ledger.",
        )


def _bytes(lsn: Position | None) -> bytes | None:
    return lsn.value if lsn else None
