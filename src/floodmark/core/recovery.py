"""Gaps and their repair, the release of quarantined rows, and replays of an interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from floodmark.core.alert import Alert
from floodmark.core.errors import ConfigError, WindowExpiredError, command_line
from floodmark.core.plan import TablePlan, WindowPlan
from floodmark.core.planning import plan_table
from floodmark.core.position import Interval, Lsn, Position
from floodmark.core.schema import TableName
from floodmark.core.settings import OnFailure, PipelineSettings, Rule, Style, TableSettings
from floodmark.core.snapshot import Feed, SourceSnapshot, TableSnapshot, TableState, Validity, Verdict
from floodmark.core.verdicts import classify, describe_low_end, incident

# --------------------------------------------------------------------------------------------------------------------
# Gaps: stretches of the log whose changes can no longer be read, and the repair of a table that has one.
#
# The changes are lost, the rows are not: the table itself still has them. A target that is not the one that the
# watermark belongs to is such a gap too, from the beginning to the watermark. A repair reads the whole table again and
# then deletes rows that no longer exist.


REPAIR = "repair"
"""The kind of the alert that a table is reloaded because of a gap."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The lost changes above ``after`` up to ``to``, as far as known; times are the source's.

    After a rewind it is the stretch that the target has and the source no longer has. Once the source has written on
    beyond it, its beginning is unknown.
    """

    table: TableName
    verdict: Verdict
    cause: str
    after: Position | None
    to: Position | None
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
        newest, watermark = snapshot.newest, validity.watermark
        if not isinstance(newest, Position) or (watermark and newest >= watermark):
            return replace(gap, after=None, after_at=None, to=watermark, to_at=at)
        return replace(gap, after=newest, after_at=snapshot.newest_at, to=watermark, to_at=at)
    if validity.verdict is Verdict.TARGET_LOST:
        return replace(gap, after=None, after_at=None, to=validity.watermark, to_at=at)
    if validity.verdict is Verdict.INSTANCE_REPLACED and table_snapshot.feed is not None:
        found = table_snapshot.feed
        # The time is that of a capture instance. A table that records its changes itself is older than its history.
        to_at = None if snapshot.is_synchronous else found.identity.created_at
        return replace(gap, to=found.start, to_at=to_at)
    return replace(gap, to=validity.oldest, to_at=table_snapshot.oldest_at)


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
    lost = f"({gap.after or 'an unknown beginning'}, {gap.to or 'unknown'}]"
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
        do=f"Make sure that the DAG cdc_load_{pipeline} is not paused, or run "
        f"{command_line('reload', pipeline, gap.table)}. " + _PREVENT[gap.verdict],
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


# --------------------------------------------------------------------------------------------------------------------
# The release of rows from quarantine: its outcome, and the rules that it applies.


@dataclass(frozen=True, slots=True)
class Release:
    """The outcome of a release, in entries of quarantine: a row has one for each rule that it broke."""

    released: int = 0
    """Entries whose rows were merged, or had been already."""
    overtaken: int = 0
    """Entries of changes that later ones have replaced: nothing of them is missing in the target."""
    remaining: Mapping[str, int] = field(default_factory=dict)
    """The entries that stay, by rule."""
    unfit: int = 0
    """The rows among them that break no rule, but lack a value that the target needs, or have another key."""
    window_id: int | None = None
    """The window that merged the rows; None where there was none to merge."""
    inserted_rows: int = 0
    updated_rows: int = 0


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The outcome of the deletion of a key."""

    counts: Mapping[str, int]
    """What was deleted, by place: rows with the key of ``target``, ``versions``, ``tombstones`` and ``quarantine``;
    ``staging_tables`` as a whole; ``load_bounds`` and ``load_conditions`` of finished loads, whatever their keys."""
    still_exists: bool = False
    """Whether the row was not deleted at the source, as far as its windows show."""
    unread_messages: int = 0
    """Messages of the table in quarantine that could not be read: whether they have the key is not known."""
    receipt: int | None = None
    """The number of the receipt in the ledger; None where nothing was deleted yet."""


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """The rows of a table that wait in quarantine: each key once, however many rules it broke, and how often."""

    table: TableName
    rows: int
    rules: tuple[str, ...]


def release_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules for a release: a row that breaks one that would stop a run stays in quarantine."""
    return tuple(
        replace(rule, on_failure=OnFailure.QUARANTINE) if rule.on_failure is OnFailure.STOP else rule for rule in rules
    )


# --------------------------------------------------------------------------------------------------------------------
# A replay: an interval of the log that was read before, merged again; which part of it for which table.
#
# ``core.recovery`` finds the interval.
#
# The changes of a window can be merged again, because each key that it touched has a row or a tombstone in the target,
# with the LSN of its last change. This does not hold for changes that never went through a window: a row that was
# inserted and deleted before the first load, or in a stretch that a reload skipped, has left nothing, and its insert
# alone would create it forever. A load of a whole table has a position L0: it read the rows as of L0 or later, and
# every change after L0 goes through windows. So only changes after the newest L0 of a table are replayed. L0 is the
# right bound, and not the end of the read: a change that the load read too early comes in a window after L0, which
# leaves a row or a tombstone. And nothing below L0 is missing in a table as the load left it.


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
    to: Position
    """The LSN that the rows are stamped with."""
    to_at: datetime | None = None
    """Its commit time, local time of the source; None where it is unknown."""

    def __str__(self) -> str:
        return f"{self.to}" + (f" ({self.to_at:%Y-%m-%d %H:%M:%S})" if self.to_at else "")


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
    forgotten: Mapping[TableName, Position] = field(default_factory=dict)
    """Up to where changes are not merged again: they may be of a key that was forgotten there."""
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
    def to(self) -> Position:
        """Return the end of the part that is replayed."""
        return max((table.interval.to for table in self.tables if table.interval), default=self.interval.to)


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
    verdict; where a table's validity interval begins inside its part of the interval, no table is replayed. A table
    that was switched to another capture instance inside of it is left out, if others can be replayed.
    """
    table_snapshots = {table_snapshot.table: table_snapshot for table_snapshot in snapshot.tables}
    notes = [f"{table}: {why}" for table, why in sorted(records.left_out.items())]
    plans: list[TablePlan] = []
    refused: list[Validity] = []
    switched: list[Validity] = []
    for table in settings.tables:
        state = states.get(table.source)
        if table.source in records.left_out:
            continue
        if table.style is Style.SNAPSHOT:
            notes.append(f"{table.source}: its target is a snapshot of the table, which has no changes: reload it.")
            continue
        if state is None or state.watermark is None:
            notes.append(f"{table.source}: it has not been loaded yet.")
            continue
        feed = table_snapshots[table.source].feed
        has_net = feed is not None and feed.supports_net_changes
        part, sentences = _part_of(table.source, interval, state.watermark, records, has_net=has_net)
        notes += [f"{table.source}: {sentence}" for sentence in sentences]
        if part is None:
            continue
        table_snapshot = table_snapshots[table.source]
        if validity := _refusal(table_snapshot, snapshot, state, part):
            (switched if _is_switched_in(feed, validity, part) else refused).append(validity)
            continue
        plans.append(_plan(table, table_snapshot, snapshot, state, part))
    if error := incident(settings.name, tuple(refused if plans else (*refused, *switched))):
        raise error
    notes += [f"{each.table}: not replayed: {each.cause} {each.hint}" for each in switched]
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
    return wide.after <= narrow.after and narrow.to <= wide.to


def _part_of(
    table: TableName, interval: Interval, watermark: Position, records: ReplayRecords, *, has_net: bool
) -> tuple[Interval | None, list[str]]:
    """Return the part of the interval that is replayed of a table, and sentences on where it differs.

    has_net: whether the server can compute net changes of it.
    """
    load, net_end = records.whole_loads.get(table), records.server_net_ends.get(table)
    after, to, notes = interval.after, interval.to, []
    if load is not None and to <= load.to:
        return None, [
            f"nothing to replay: the whole table was read at {load}, and is complete from there on (if rows were lost "
            "since then: floodmark reload, with --where for some of them)."
        ]
    if load is not None and after < load.to:
        after = load.to
        notes.append(f"from {load} on, at which the whole table was read.")
    if (forgotten := records.forgotten.get(table)) is not None and after < forgotten:
        if to <= forgotten:
            return None, [f"nothing to replay: a key was forgotten at {forgotten}, and might come back."]
        after = forgotten
        notes.append(f"from {forgotten} on, at which a key was forgotten.")
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
            f"up to {to}: the ledger has no window around {interval.to}, whose net changes the server may have "
            "computed."
        )
    return Interval(after, to), notes


def _plan(
    table: TableSettings, table_snapshot: TableSnapshot, snapshot: SourceSnapshot, state: TableState, part: Interval
) -> TablePlan:
    planned = plan_table(table, table_snapshot, replace(snapshot, newest=part.to), replace(state, watermark=part.after))
    return replace(planned, watermark=state.watermark)


def _is_switched_in(feed: Feed | None, validity: Validity, part: Interval) -> bool:
    """Return whether the instance of a table begins in its part: until then another one was read, without a load."""
    return validity.verdict is Verdict.EXPIRED and feed is not None and feed.start > part.after


def _refusal(
    table_snapshot: TableSnapshot, snapshot: SourceSnapshot, state: TableState, part: Interval
) -> Validity | None:
    """Return a verdict that forbids the replay.

    It does not matter that capture does not run, or has cleaned up elsewhere.
    """
    validity = classify(table_snapshot, snapshot, state)
    if validity.verdict in _REFUSED:
        return validity
    low = table_snapshot.oldest
    assert isinstance(low, Position)  # noqa: S101  (otherwise classify reports a missing right, or a rewind)
    if low <= part.after.next():
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


# --------------------------------------------------------------------------------------------------------------------
# The interval of the log that a replay covers: two LSNs, or two times of the source's clock, both included.
#
# The merge tolerates overlap, so that an interval may be wider than asked for, and never narrower. Times of the source
# are local and without a zone: an hour that its clock repeats, or a clock that was set back, makes them go back while
# LSNs rise. The first entry not before the beginning and the last one not after the end cover everything that was
# committed in between, if the beginning is moved back, and the end forward, by what the clock is set back near them.


_SECOND = timedelta(seconds=1)
_UNKNOWN_ZONE = timedelta(minutes=61)
"""How far the clock may have been from today's offset: daylight saving is an hour, the offset is exact to a minute."""


@dataclass(frozen=True, slots=True)
class LocalSpan:
    """The local times that a moment may have had.

    Both are the same where the time zone is known and the clock is not set back near the moment.
    """

    earliest: datetime
    """No entry from the moment on has an earlier local time."""
    latest: datetime
    """No entry up to the moment has a later local time."""


@dataclass(frozen=True, slots=True)
class MappedTimes:
    """The entries of the log around two local times."""

    first: Position | None
    """The first entry not before the beginning; None where there is none."""
    last: Position | None
    """The last entry not after the end; None where there is none."""
    reaches_before: bool
    """Whether an entry is before the beginning."""
    oldest_at: datetime | None
    """The oldest entry; None while the log is empty."""
    newest_at: datetime | None = None
    """The newest entry; None while the log is empty."""


@dataclass(frozen=True, slots=True)
class NoInterval:
    """There is nothing to replay; the reason is a sentence."""

    reason: str


def local_span(at_utc: datetime, local: LocalSpan | None, offset_minutes: int) -> LocalSpan:
    """Return the local times that a moment may have had.

    at_utc: without a zone. local: the span by the server's own time zone, None where that is unknown. offset_minutes:
    of the server's clock today.
    """
    if local is not None:
        return local
    today = at_utc + timedelta(minutes=offset_minutes)
    return LocalSpan(today - _UNKNOWN_ZONE, today + _UNKNOWN_ZONE)


def covering_times(begin: LocalSpan, end: LocalSpan) -> tuple[datetime, datetime]:
    """Return two times between which nothing is missed.

    They are in whole seconds, which datetime holds exactly.
    """
    from_at = begin.earliest.replace(microsecond=0)
    to_at = end.latest.replace(microsecond=0)
    return from_at, to_at if to_at == end.latest else to_at + _SECOND


def interval_of(pipeline: str, from_at: datetime, to_at: datetime, found: MappedTimes) -> Interval | NoInterval:
    """Return the interval of two times.

    Raises WindowExpiredError when the log does not reach back so far, ConfigError for times in the wrong order.
    """
    asked = f"from {from_at} to {to_at} (the source's clock)"
    if to_at < from_at:
        raise ConfigError("replay", f"the time {asked} ends before it begins.")
    if not found.reaches_before:
        oldest = f"at {found.oldest_at:%Y-%m-%d %H:%M:%S}" if found.oldest_at else "which is empty"
        raise WindowExpiredError(
            pipeline,
            f"expired: the interval {asked} begins before the log of captured changes, {oldest}.",
            "Earlier changes were cleaned up or never captured: choose a later beginning, or reload the tables.",
        )
    if found.first is None:
        reached = f" to {found.newest_at:%Y-%m-%d %H:%M:%S}" if found.newest_at else ""
        return NoInterval(
            f"capture has not reached the time {asked}, only{reached}: its changes are not known yet, and the normal "
            "runs will load them."
        )
    if found.last is None or found.first > found.last:
        return NoInterval(f"nothing was committed {asked}.")
    return Interval(found.first.previous(), found.last)


def parse_bounds(begin: str, end: str) -> Interval:
    """Return the interval of two LSNs in text, both included. Raises ConfigError."""
    try:
        first, last = Lsn.parse(begin), Lsn.parse(end)
    except ValueError as error:
        raise ConfigError("replay", f"{error}.") from None
    if last < first:
        raise ConfigError("replay", f"the interval from {first} to {last} ends before it begins.")
    try:
        return Interval(first.previous(), last)
    except ValueError:
        raise ConfigError("replay", f"there is no LSN below {first}: choose a later beginning.") from None
