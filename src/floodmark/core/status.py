"""The status of a pipeline in plain values: its tables, its history, its measures, its comparison with the source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from floodmark.core.capture import PlannedStop
from floodmark.core.drift import InstanceSwitch, next_step
from floodmark.core.position import Position
from floodmark.core.progress import SourceProgress, Standing, headroom_seconds, lag_seconds
from floodmark.core.schema import TableName
from floodmark.core.snapshot import FeedIdentity, SourceSnapshot, Verdict
from floodmark.core.upkeep import table_sizes

# --------------------------------------------------------------------------------------------------------------------
# The history of a table in the ledger, in plain values.


@dataclass(frozen=True, slots=True)
class TableWindow:
    """A window with the table in it. Times are UTC, None for steps that have not ended."""

    window_id: int
    lane: str
    """Empty for the windows that follow the log."""
    kind: str
    """How the table was read, such as first_load or changes."""
    state: str
    attempt: int
    opened_at: datetime
    merged_at: datetime | None
    checked_at: datetime | None
    advanced_at: datetime | None
    to_lsn_at: datetime | None
    """The commit time of the window's end, local time of the source."""
    read_rows: int
    inserted_rows: int
    updated_rows: int
    deleted_rows: int
    unchanged_rows: int
    quarantined_rows: int
    lag_seconds: float | None = None
    """The age of the window's end when it was published; None where no watermark moved."""
    margin_seconds: float | None = None
    """From the low end of the validity interval to the watermark when the window was opened."""
    change_rows: int | None = None
    """The rows of the change tables, where something measured them."""
    change_bytes: int | None = None
    """The size of the change tables."""
    dag_id: str | None = None
    run_id: str | None = None
    """The last run of Airflow that opened or continued the window; None where the command line did."""


@dataclass(frozen=True, slots=True)
class TableGap:
    """A stretch of the log whose changes could not be read. repaired_at: None while it is open."""

    verdict: str
    cause: str
    found_at: datetime
    repaired_at: datetime | None


@dataclass(frozen=True, slots=True)
class RuleCount:
    """The rows of a table that wait in quarantine because they broke a rule."""

    table: str
    rule: str
    rows: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class QuarantinedKey:
    """A row that waits in quarantine because it broke a rule, without its values but those of the key."""

    rule: str
    key: tuple[Any, ...]
    """In the order of the key, as JSON has them."""
    lsn: str
    window_id: int
    """The window that read it."""
    at: datetime


@dataclass(frozen=True, slots=True)
class DriftNote:
    """A difference between the shapes of a table, found at the source."""

    event_id: int
    found_at: datetime
    what: str
    decision: str
    """undecided, approved by NAME, or rejected."""
    proposal: str


@dataclass(frozen=True, slots=True)
class TableHistory:
    """windows: the last ones, the oldest first. The others: the newest first."""

    windows: tuple[TableWindow, ...] = ()
    gaps: tuple[TableGap, ...] = ()
    quarantine: tuple[RuleCount, ...] = ()
    drift: tuple[DriftNote, ...] = ()


# --------------------------------------------------------------------------------------------------------------------
# The lag of each table of a pipeline, its headroom, and the space of its changes at the source.
#
# Alerts and metrics use them.


_NOTHING_COMES = (Verdict.CAPTURE_STOPPED, Verdict.CAPTURE_LAGGING)


@dataclass(frozen=True, slots=True)
class TableMark:
    """The ledger's state of a table."""

    table: TableName
    watermark: Position | None
    watermark_at: datetime | None
    """Local time of the source."""
    verdict: Verdict | None
    """Of the last run."""


@dataclass(frozen=True, slots=True)
class TableMeasure:
    """The measures of a table. None: unknown, without a watermark or because the login may not see it."""

    table: TableName
    lag_seconds: float | None
    """The age of the watermark by the source's clock; 0 when the source has nothing newer. Failed runs send it too."""
    headroom_seconds: float | None
    """The time until cleanup may pass the watermark, if that does not move. Unknown where the login may not see the
    retention."""
    change_rows: int | None = None
    """The rows in the change tables of all its capture instances. Unknown where the login may not read them."""
    change_bytes: int | None = None
    """The size of these change tables at the source, indexes and large values included. Unknown as well."""
    unread_messages: int | None = None
    """The messages of an event stream that were not read for the table, those of other tables included."""


def measure_tables(
    marks: Sequence[TableMark], snapshot: SourceSnapshot, progress: SourceProgress
) -> tuple[TableMeasure, ...]:
    """Return the measures of each table.

    Where capture delivers nothing, the age of the watermark is the lag: that the source has nothing newer does not
    prove then that the target has everything.
    """
    measures = []
    sizes = table_sizes([mark.table for mark in marks], progress.sizes)
    for each in marks:
        mark = replace(each, watermark_at=progress.unread_since(each.watermark, each.watermark_at))
        unread = progress.unread.get(mark.table)
        measures.append(
            TableMeasure(
                mark.table,
                unread.seconds if unread else lag_of(mark, snapshot),
                _headroom(mark, snapshot, progress.retention_minutes),
                *sizes.get(mark.table, (None, None)),
                unread.messages if unread else None,
            )
        )
    return tuple(measures)


def lag_of(mark: TableMark, snapshot: SourceSnapshot) -> float | None:
    """Return the lag of a table in seconds, None where it is unknown."""
    if mark.verdict in _NOTHING_COMES and mark.watermark_at is not None:
        age = (snapshot.taken_at - mark.watermark_at).total_seconds()
        return max(age - snapshot.clock_ahead_seconds, 0.0)
    return lag_seconds(mark.watermark, mark.watermark_at, snapshot)


def _headroom(mark: TableMark, snapshot: SourceSnapshot, retention_minutes: int | None) -> float | None:
    if mark.verdict is None:
        return None
    return headroom_seconds(mark.watermark_at, snapshot.taken_at, retention_minutes, mark.verdict)


# --------------------------------------------------------------------------------------------------------------------
# Planned causes of lag, for the status of a pipeline: a stop of the capture job, a switch of instances.


@dataclass(frozen=True, slots=True)
class StopStatus:
    """A planned stop of the capture job, with the time zone of its schedule."""

    since: datetime
    until: datetime
    is_on: bool
    """False shortly after it, while capture may be catching up."""
    job_runs: bool | None = None
    """None: the source was not asked, or did not answer."""

    def __str__(self) -> str:
        planned = f"from {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M %Z}"
        if not self.is_on:
            return f"a planned stop of the capture job, {planned}, has just ended: its changes will follow."
        if self.job_runs:
            return (
                f"a stop of the capture job is planned {planned}, and the job is still running: it catches up first, "
                "or its DAG has not run yet."
            )
        return (
            f"a planned stop of the capture job is in effect, {planned}: changes committed during it reach the target "
            "afterwards. This is not an incident."
        )


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """The status of a table in an approved switch of capture instances."""

    switch_id: int
    old: str
    new: str
    columns: tuple[str, ...]
    step: str
    """The next step for the pipeline, by name (see ``next_step``)."""
    what: str
    """The next step in words."""
    approved_by: str
    approved_at: datetime

    def __str__(self) -> str:
        return f"switch {self.switch_id} from {self.old} to {self.new} for {', '.join(self.columns)}: {self.what}"


def stop_status(stop: PlannedStop | None, now: datetime, *, job_runs: bool | None = None) -> StopStatus | None:
    """Return the status of a planned stop.

    now: with a zone.
    """
    return None if stop is None else StopStatus(stop.since, stop.until, now < stop.until, job_runs)


def switch_status(
    switches: Iterable[InstanceSwitch], pipeline: str, table: TableName, identity: FeedIdentity | None
) -> SwitchStatus | None:
    """Return the status of the switch that a table is in, None where it is in none.

    identity: of the capture instance that the pipeline reads, None before its first load. It finds the switch also
    where the pipeline spells the table differently from the server, and none where it reads an instance that stays.
    """
    for switch in switches:
        if identity in (switch.old, switch.new) if identity else switch.table == table:
            return SwitchStatus(
                switch.switch_id,
                switch.old.name,
                switch.new.name if switch.new else switch.name,
                switch.added,
                *next_step(switch, pipeline),
                switch.approved_by,
                switch.approved_at,
            )
    return None


# --------------------------------------------------------------------------------------------------------------------
# The status of a pipeline and its tables, as ``floodmark status`` reports it, in plain values.


NEVER_RUN = "never_run"


@dataclass(frozen=True, slots=True)
class LastWindow:
    """The rows that the last published window changed in a table."""

    window_id: int
    read_rows: int
    inserted_rows: int
    updated_rows: int
    deleted_rows: int
    quarantined_rows: int
    margin_seconds: float | None = None
    """From the oldest change that the source had to the watermark, when the window was planned. It is no headroom: how
    long changes are kept is not known from it."""


@dataclass(frozen=True, slots=True)
class ChangeTableStatus:
    """The change table of a capture instance."""

    instance: str
    rows: int | None
    """None where the login may not see it."""
    size_bytes: int | None
    """None where the login may not see it."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table of a pipeline. Values that only the source knows are None or empty unless the source was asked."""

    source: str
    target: str
    watermark: str | None = None
    watermark_at: datetime | None = None
    """The commit time of the watermark, local time of the source."""
    consistent: bool = False
    verdict: str = NEVER_RUN
    cause: str = ""
    windows: int = 0
    """Published windows; the rows below are of all of them."""
    read_rows: int = 0
    inserted_rows: int = 0
    updated_rows: int = 0
    deleted_rows: int = 0
    quarantined_rows: int = 0
    advanced_at: datetime | None = None
    lag_seconds: float | None = None
    """The age of the watermark; from the source."""
    least_lag_seconds: float | None = None
    """The time since a run last found that the target has all that the source had, from the ledger: the watermark is as
    old at least. None with the source, which knows the lag."""
    state: str = NEVER_RUN
    """never_run, first_load, settling (loaded, and consistent with the others after a window or two) or consistent."""
    hint: str = ""
    verdict_since: datetime | None = None
    verdict_seen_at: datetime | None = None
    transactions_behind: int | None = None
    """In the whole database; from the source."""
    unread_messages: int | None = None
    """The messages of the stream that were not read for the table; from the source."""
    headroom_seconds: float | None = None
    """The time until cleanup passes the watermark; from the source. None also where the login may not see the
    retention."""
    headroom_transactions: int | None = None
    """How many more transactions cleanup may pass before it passes the watermark; from the source. None where positions
    do not count them."""
    last_window: LastWindow | None = None
    standing: str = Standing.FINE.name.lower()
    """fine, attention or incident."""
    reason: str = ""
    """The reason for the standing."""
    load_percent: int | None = None
    load_rows: int | None = None
    drift: tuple[str, ...] = ()
    """Undecided events, in words, with their numbers."""
    waiting_rows: int = 0
    """The rows that wait in quarantine now: keys, not entries."""
    change_tables: tuple[ChangeTableStatus, ...] = ()
    """The change tables of the table's capture instances; from the source."""
    switch: SwitchStatus | None = None
    """The approved switch that is under way."""


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """An open alert about the pipeline or its source."""

    key: str
    """Names the alert for ``floodmark alerts close``."""
    kind: str
    subject: str
    table: str | None
    what: str
    do: str
    raised_at: datetime
    times: int


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """A pipeline with its tables."""

    pipeline: str
    unfinished_window_id: int | None
    """The window that the next run finishes."""
    unfinished_state: str | None
    tables: tuple[TableStatus, ...]
    alerts: tuple[AlertStatus, ...] = ()
    standing: str = Standing.FINE.name.lower()
    """The worst of its tables; at least attention while an alert is open, and incident while its runs fail."""
    planned_stop: StopStatus | None = None
    """Of the capture job of its source; None where there is none now, or it was ended early."""


# --------------------------------------------------------------------------------------------------------------------
# The result of comparing a source table with its target.


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A key whose row is not the same in source and target."""

    key: tuple[Any, ...]
    kind: str
    """Either "missing" in the target, "extra" in it, or "different"."""
    columns: tuple[str, ...] = ()
    """The columns that differ, for "different"."""

    def __str__(self) -> str:
        key = ", ".join(map(str, self.key))
        return f"key ({key}) is {self.kind}" + (f" in {', '.join(self.columns)}" if self.columns else "")


@dataclass(frozen=True, slots=True)
class TableVerification:
    """The comparison of one table. Rows of the target that are marked as deleted do not count."""

    source: TableName
    target: TableName
    source_rows: int
    target_rows: int
    missing_rows: int
    extra_rows: int
    different_rows: int
    differences: tuple[RowDifference, ...]
    """The first ones, by key; the counts are complete."""
    waiting_rows: int = 0
    """Rows of the source that wait in quarantine as they are. They are no differences."""
    changed_rows: int = 0
    """The keys that were changed after the watermark, and are left out."""
    is_sample: bool = False
    """Whether only some rows of the source were read. Rows that only the target has are not found then."""
    unproven: str = ""
    """Why a difference may be a change that is still to come; "" where it is none."""

    @property
    def different_keys(self) -> int:
        """Return the number of keys whose rows are not the same."""
        return self.missing_rows + self.extra_rows + self.different_rows

    @property
    def equal(self) -> bool:
        """Return whether all rows are the same."""
        return self.different_keys == 0

    @property
    def equal_rows(self) -> int:
        """Return the number of source rows that the target has as they are."""
        return self.source_rows - self.missing_rows - self.different_rows - self.waiting_rows

    @property
    def outcome(self) -> str:
        """Return the result in a word."""
        return "equal" if self.equal else "UNPROVEN" if self.unproven else "DIFFERENT"

    def __str__(self) -> str:
        if self.equal:
            return f"{self.source}: equal, {self.source_rows} rows"
        return (
            f"{self.source}: DIFFERENT: {self.missing_rows} missing, {self.extra_rows} extra,"
            f" {self.different_rows} different of {self.source_rows} rows in the source"
        )
