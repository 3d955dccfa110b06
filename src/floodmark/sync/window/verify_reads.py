"""The second check of the source: all changes that were read, or will be read by a later attempt, must still exist."""

from __future__ import annotations

from collections.abc import Collection

from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import SourceSnapshot, Validity, Verdict
from floodmark.core.source.verdicts import classify_read, incident
from floodmark.core.window.plan import LoadKind, WindowPlan
from floodmark.core.window.readers_view import check_readers_view
from floodmark.sync.ports.source import Source


def verify_reads(plan: WindowPlan, source: Source, read_whole: Collection[TableName] = ()) -> SourceSnapshot:
    """Raise the errors of ``open_window`` where a capture instance was cleaned up beyond the window, replaced or
    removed, or where the source was restored to a time before the window's end.

    A first load needs the changes after its ``to_lsn``: they make it consistent. It also needs the login to see the
    table as it is: a mask or a filter may have come since it was planned.

    read_whole: the tables whose read itself proves that it is complete; what was cleaned up since then does not matter.
    """
    snapshot, validities = classify_reads(plan, source)
    validities = tuple(
        each for each in validities if each.verdict is not Verdict.EXPIRED or each.table not in read_whole
    )
    if error := incident(plan.pipeline, validities):
        raise error
    loaded = {table.source: table for table in plan.tables if table.kind is LoadKind.FIRST_LOAD}
    for table_snapshot in snapshot.tables:
        if table_snapshot.table in loaded:
            check_readers_view(table_snapshot, accepts_filters=loaded[table_snapshot.table].keeps_unread)
    return snapshot


def classify_reads(plan: WindowPlan, source: Source) -> tuple[SourceSnapshot, tuple[Validity, ...]]:
    """Return the current snapshot of the source, and the verdict on each table of the plan."""
    instances = planned_instances(plan)
    snapshot = source.read_snapshot(list(instances), instances, planned_positions(plan))
    return snapshot, classify_planned(plan, snapshot)


def planned_instances(plan: WindowPlan) -> dict[TableName, str]:
    """Return the capture instances that a plan reads."""
    return {table.source: table.feed.identity.name for table in plan.tables}


def planned_positions(plan: WindowPlan) -> list[Position]:
    """Return the positions whose commit time ``classify_planned`` compares."""
    return [plan.to_lsn] if plan.to_lsn_at else []


def classify_planned(plan: WindowPlan, snapshot: SourceSnapshot) -> tuple[Validity, ...]:
    """Return the verdict on each table of a plan.

    snapshot: of the instances of the plan, with its positions.
    """
    table_snapshots = {table_snapshot.table: table_snapshot for table_snapshot in snapshot.tables}
    return tuple(
        classify_read(
            table_snapshots[table.source],
            snapshot,
            table.feed,
            table.interval.after_lsn if table.interval else plan.to_lsn,
            to_lsn=plan.to_lsn,
            to_lsn_at=plan.to_lsn_at,
            pipeline=plan.pipeline,
        )
        for table in plan.tables
    )
