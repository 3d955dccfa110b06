"""Gaps: stretches of the log whose changes can no longer be read, and the repair of a table that has one.

The changes are lost, the rows are not: the table itself still has them. A target that is not the one that the watermark
belongs to is such a gap too, from the beginning to the watermark. A repair reads the whole table again and then
deletes rows that no longer exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from floodmark.core.alert import Alert
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import SourceSnapshot, TableSnapshot, Validity, Verdict
from floodmark.core.source.state import TableState

REPAIR = "repair"
"""The kind of the alert that a table is reloaded because of a gap."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The lost changes after ``after_lsn`` up to ``to_lsn``, as far as known; times are the source's.

    After a rewind it is the stretch that the target has and the source no longer has. Once the source has written on
    beyond it, its beginning is unknown.
    """

    table: TableName
    verdict: Verdict
    cause: str
    after_lsn: Position | None
    to_lsn: Position | None
    after_at: datetime | None
    to_at: datetime | None


def build_gap(
    validity: Validity, table_snapshot: TableSnapshot, snapshot: SourceSnapshot, state: TableState | None
) -> Gap:
    """Return the gap of a table.

    validity: its verdict is one of ``GAPS``.
    """
    at = state.watermark_at if state else None
    gap = Gap(validity.table, validity.verdict, validity.cause, validity.watermark, None, at, None)
    if validity.verdict is Verdict.AHEAD_OF_SOURCE:
        newest, watermark = snapshot.max_lsn, validity.watermark
        if not isinstance(newest, Position) or (watermark and newest >= watermark):
            return replace(gap, after_lsn=None, after_at=None, to_lsn=watermark, to_at=at)
        return replace(gap, after_lsn=newest, after_at=snapshot.max_lsn_at, to_lsn=watermark, to_at=at)
    if validity.verdict is Verdict.TARGET_LOST:
        return replace(gap, after_lsn=None, after_at=None, to_lsn=validity.watermark, to_at=at)
    if validity.verdict is Verdict.INSTANCE_REPLACED and table_snapshot.instance is not None:
        found = table_snapshot.instance
        # The time is that of a capture instance. A table that records its changes itself is older than its history.
        to_at = None if snapshot.is_synchronous else found.identity.created_at
        return replace(gap, to_lsn=found.start_lsn, to_at=to_at)
    return replace(gap, to_lsn=validity.min_lsn, to_at=table_snapshot.min_lsn_at)


def repairing(validity: Validity, cause: str, *, is_first: bool = False) -> Validity:
    """Return the verdict on a table that is loaded in parallel to the others, again or for the first time."""
    hint = "Its old rows stay readable; when the load has been published, it joins the others."
    if is_first:
        hint = "The others go on; when the load has been published, it joins them."
    return replace(validity, verdict=Verdict.REPAIRING, cause=cause, hint=hint)


def repair_key(pipeline: str, table: TableName) -> str:
    """Return the event key of the alert."""
    return f"repair:{pipeline}:{table}"


def build_repair_alert(pipeline: str, gap: Gap, window_id: int) -> Alert:
    """Return the alert that a table is being reloaded because of a gap."""
    lost = f"({gap.after_lsn or 'an unknown beginning'}, {gap.to_lsn or 'unknown'}]"
    known = gap.after_at or gap.to_at
    times = f", by the source's clock {_moment(gap.after_at)} to {_moment(gap.to_at)}" if known else ""
    return Alert(
        kind=REPAIR,
        subject=pipeline,
        table=gap.table,
        what=f"{gap.verdict.value}: {gap.cause} Window {window_id} reloads the table.",
        means=(
            "The target may lack rows, or have rows of another time, until the load has been published; the other "
            "tables of the pipeline go on."
            if gap.verdict is Verdict.TARGET_LOST
            else f"The changes in {lost}{times} can no longer be read one by one. Until the load has been published, "
            "the target shows the table as it was; the other tables of the pipeline go on."
        ),
        do=f"Make sure that the DAG cdc_load_{pipeline} is not paused, or run floodmark reload {pipeline} {gap.table}. "
        + _PREVENT[gap.verdict],
        event_key=repair_key(pipeline, gap.table),
    )


_PREVENT = {
    Verdict.EXPIRED: "Then raise the retention, or run more often.",
    Verdict.INSTANCE_REPLACED: "Then find out who did it.",
    Verdict.TARGET_LOST: "Then find out who changed or restored the target.",
    Verdict.AHEAD_OF_SOURCE: "Then find out whether the source was restored or failed over, and what else it lost.",
}


def _moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else "an unknown time"
