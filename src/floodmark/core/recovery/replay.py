"""A replay: an interval of the log that was read before, merged again; which part of it for which table.

``core.recovery.replay_interval`` finds the interval.

The changes of a window can be merged again, because each key that it touched has a row or a tombstone in the target,
with the LSN of its last change. This does not hold for changes that never went through a window: a row that was
inserted and deleted before the first load, or in a stretch that a reload skipped, has left nothing, and its insert
alone would create it forever. A load of a whole table has a position L0: it read the rows as of L0 or later, and every
change after L0 goes through windows. So only changes after the newest L0 of a table are replayed. L0 is the right
bound, and not the end of the read: a change that the load read too early comes in a window after L0, which leaves a row
or a tombstone. And nothing below L0 is missing in a table as the load left it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from floodmark.core.interval import Interval
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.source.snapshot import SourceSnapshot, TableSnapshot, Validity, Verdict
from floodmark.core.source.state import TableState
from floodmark.core.source.verdicts import classify, describe_low_end, incident
from floodmark.core.window.plan import TablePlan, WindowPlan
from floodmark.core.window.planning import plan_table

_REFUSED = (
    Verdict.OTHER_DATABASE,
    Verdict.REPLICA_BEHIND,
    Verdict.NO_PERMISSION,
    Verdict.INSTANCE_MISSING,
    Verdict.INSTANCE_REPLACED,
    Verdict.AHEAD_OF_SOURCE,
    Verdict.TARGET_LOST,
)


@dataclass(frozen=True, slots=True)
class WholeLoad:
    """The newest published load of all rows of a table: a first load, a reload, a repair."""

    window_id: int
    to_lsn: Position
    """The LSN that the rows are stamped with."""
    to_lsn_at: datetime | None = None
    """Its commit time, local time of the source; None where it is unknown."""

    def __str__(self) -> str:
        return f"{self.to_lsn}" + (f" ({self.to_lsn_at:%Y-%m-%d %H:%M:%S})" if self.to_lsn_at else "")


@dataclass(frozen=True, slots=True)
class ReplayRecords:
    """The ledger's records on the tables, in addition to their states."""

    left_out: Mapping[TableName, str] = field(default_factory=dict)
    """Why a table must not be touched now."""
    whole_loads: Mapping[TableName, WholeLoad] = field(default_factory=dict)
    server_net_ends: Mapping[TableName, Position] = field(default_factory=dict)
    """The end of the window that the end of the interval is inside of, if the server computed its net changes. They
    omit a row that was inserted and deleted in one window, so that there is no tombstone, and the insert must not be
    replayed without the delete."""
    next_begins: Mapping[TableName, Position] = field(default_factory=dict)
    """The beginning of the next window, where the ledger has none around the end of the interval: it was deleted, or
    there were no changes."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The plan of a replay."""

    interval: Interval
    tables: tuple[TablePlan, ...]
    """Each table with its part of the interval."""
    left_out: tuple[str, ...]
    """A sentence for each table that is not replayed, or not completely."""
    records: ReplayRecords
    """The records that the plan is based on."""

    @property
    def to_lsn(self) -> Position:
        """Return the end of the part that is replayed."""
        return max((table.interval.to_lsn for table in self.tables if table.interval), default=self.interval.to_lsn)


def plan_replay(
    settings: PipelineSettings,
    snapshot: SourceSnapshot,
    states: Mapping[TableName, TableState],
    interval: Interval,
    records: ReplayRecords,
) -> ReplayPlan:
    """Return the plan of a replay.

    Only the part up to a table's watermark is replayed: a LOB that a change omitted is right only when windows are
    merged for the first time in order, and the part above is for the normal runs. Raises the error of the gravest
    verdict; where a table's validity interval begins inside its part of the interval, no table is replayed.
    """
    table_snapshots = {table_snapshot.table: table_snapshot for table_snapshot in snapshot.tables}
    notes = [f"{table}: {why}" for table, why in sorted(records.left_out.items())]
    plans, refused = [], []
    for table in settings.tables:
        state = states.get(table.source)
        if table.source in records.left_out:
            continue
        if state is None or state.watermark is None:
            notes.append(f"{table.source}: it has not been loaded yet.")
            continue
        instance = table_snapshots[table.source].instance
        has_net = instance is not None and instance.supports_net_changes
        part, sentences = _part_of(table.source, interval, state.watermark, records, has_net=has_net)
        notes += [f"{table.source}: {sentence}" for sentence in sentences]
        if part is None:
            continue
        table_snapshot = table_snapshots[table.source]
        if validity := _refusal(table_snapshot, snapshot, state, part):
            refused.append(validity)
            continue
        plans.append(_plan(table, table_snapshot, snapshot, state, part))
    if error := incident(settings.name, tuple(refused)):
        raise error
    return ReplayPlan(interval, tuple(plans), tuple(notes), records)


def explain_stale(window: WindowPlan, plan: ReplayPlan) -> str | None:
    """Return why an unfinished replay can no longer be finished as it was planned; None where it can.

    plan: of the same interval, as it would be planned now.
    """
    now = {table.source: table for table in plan.tables}
    for table in window.tables:
        planned, load = now.get(table.source), plan.records.whole_loads.get(table.source)
        if planned is None:
            notes = (line for line in plan.left_out if line.startswith(f"{table.source}: "))
            return next(notes, f"{table.source}: it no longer belongs to the pipeline.")
        if load is not None and load.window_id > window.window_id:
            return f"{table.source}: the whole table has been read since, at {load}."
        if planned.feed.identity != table.feed.identity:
            return f"{table.source}: it is now read from capture instance {planned.feed.identity.name}."
        if not _covers(planned.interval, table.interval):
            return f"{table.source}: only {planned.interval} of {table.interval} can still be replayed."
    return None


def _covers(wide: Interval | None, narrow: Interval | None) -> bool:
    if wide is None or narrow is None:
        return wide is narrow
    return wide.after_lsn <= narrow.after_lsn and narrow.to_lsn <= wide.to_lsn


def _part_of(
    table: TableName, interval: Interval, watermark: Position, records: ReplayRecords, *, has_net: bool
) -> tuple[Interval | None, list[str]]:
    """Return the part of the interval that is replayed of a table, and sentences on where it differs.

    has_net: whether the server can compute net changes of it.
    """
    load, net_end = records.whole_loads.get(table), records.server_net_ends.get(table)
    after, to, notes = interval.after_lsn, interval.to_lsn, []
    if load is not None and to <= load.to_lsn:
        return None, [
            f"nothing to replay: the whole table was read at {load}, and is complete from there on (if rows were lost "
            "since then: floodmark reload, with --where for some of them)."
        ]
    if load is not None and after < load.to_lsn:
        after = load.to_lsn
        notes.append(f"from {load} on, at which the whole table was read.")
    if watermark <= after:
        return None, [*notes, f"all of it lies above the watermark {watermark}, for the normal runs."]
    if watermark < to:
        to = watermark
        notes.append(f"up to the watermark {watermark}; what lies above is for the normal runs.")
    elif net_end is not None and to < min(net_end, watermark):
        to = min(net_end, watermark)
        notes.append(f"up to {to}, the end of a window whose net changes the server computed.")
    elif has_net and (begin := records.next_begins.get(table)) is not None and to < min(begin, watermark):
        to = min(begin, watermark)
        notes.append(
            f"up to {to}: the ledger has no window around {interval.to_lsn}, whose net changes the server may have "
            "computed."
        )
    return Interval(after, to), notes


def _plan(
    table: TableSettings, table_snapshot: TableSnapshot, snapshot: SourceSnapshot, state: TableState, part: Interval
) -> TablePlan:
    planned = plan_table(
        table, table_snapshot, replace(snapshot, max_lsn=part.to_lsn), replace(state, watermark=part.after_lsn)
    )
    return replace(planned, watermark=state.watermark)


def _refusal(
    table_snapshot: TableSnapshot, snapshot: SourceSnapshot, state: TableState, part: Interval
) -> Validity | None:
    """Return a verdict that forbids the replay.

    It does not matter that capture does not run, or has cleaned up elsewhere.
    """
    validity = classify(table_snapshot, snapshot, state)
    if validity.verdict in _REFUSED:
        return validity
    low = table_snapshot.min_lsn
    assert isinstance(low, Position)  # noqa: S101  (otherwise classify reports a missing right, or a rewind)
    if low <= part.after_lsn.next():
        return None
    return Validity(
        table_snapshot.table,
        Verdict.EXPIRED,
        f"the interval {part} begins below the low end of the capture instance, "
        f"{describe_low_end(table_snapshot)}: changes in it were cleaned up or never captured.",
        "Choose a later beginning, or reload the table.",
        state.watermark,
        low,
    )
