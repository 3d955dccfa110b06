"""The verdict on a table: whether its next window may be read, and if not, why and what to do.

Nothing is ever skipped to make a window readable. Two facts of the server shape the rules. ``fn_cdc_get_min_lsn`` is
NULL, or zero, until the capture job has processed sp_cdc_enable_table, and zero for a login that may not see the
instance (docs/reference/sqlserver_cdc.md, "Scalar functions"). And an idle source still makes an entry in
``cdc.lsn_time_mapping`` every five minutes, so that a log without new entries means a capture job that does not run,
and not a database without work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING

from floodmark.core.capture import CaptureJobStatus, PlannedStop
from floodmark.core.errors import (
    CaptureStoppedError,
    CdcNotEnabledError,
    DefinitionChangedError,
    FloodmarkError,
    InstanceReplacedError,
    NotCapturedYetError,
    OtherDatabaseError,
    SourceBehindError,
    SourceDamagedError,
    SourcePermissionError,
    SourceRewoundError,
    TableNotPlannableError,
    TableRefusedError,
    TargetLostError,
    WindowExpiredError,
    command_line,
)
from floodmark.core.position import NoPosition, Position
from floodmark.core.schema import TableName
from floodmark.core.snapshot import (
    LogEntry,
    Sentences,
    SourceSnapshot,
    TableSnapshot,
    TableState,
    Validity,
    Verdict,
    explain_behind,
    explain_other_database,
    explain_rewind,
    join_verdicts,
)

if TYPE_CHECKING:
    from floodmark.core.snapshot import Feed

# --------------------------------------------------------------------------------------------------------------------
# The check whether capture is alive, with its evidence.
#
# There are three kinds of evidence; the best that is available decides. A heartbeat is a row that is written at the
# source so that its change must arrive. The newest log scan proves that the job works. The age of the newest entry of
# ``cdc.lsn_time_mapping`` is the weakest: an idle source makes one every five minutes, so that silence means a job that
# does not run.


class Evidence(Enum):
    """The kind of evidence that a judgement rests on."""

    HEARTBEAT = "heartbeat"
    SCANS = "scan sessions"
    ACTIVITY = "job activity"
    """The status of the Agent: it shows that a job runs, and not that it captures anything."""
    ENTRIES = "age of the newest entry of the log"
    NONE = "no evidence"


@dataclass(frozen=True, slots=True)
class Liveness:
    """A judgement on capture. ``str()`` is the sentence for a log."""

    alive: bool | None
    """None where there is no evidence."""
    evidence: Evidence
    words: str

    def __str__(self) -> str:
        state = {True: "is alive", False: "is not alive", None: "cannot be judged"}[self.alive]
        return f"Capture {state} (evidence: {self.evidence.value}): {self.words}"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat table at one moment; times are local time of the source."""

    beat: int
    """The number that was written last."""
    beaten_at: datetime
    """When ``beat`` was written."""
    waiting_since: datetime
    """When the first beat was written that may not have arrived."""
    arrived_beat: int | None
    """The newest in the change table; None while there is none."""
    taken_at: datetime

    @property
    def has_arrived(self) -> bool:
        """Return whether the last beat is in the change table."""
        return self.arrived_beat is not None and self.arrived_beat >= self.beat


def judge_liveness(status: CaptureJobStatus, lag_limit_seconds: float, heartbeat: Heartbeat | None = None) -> Liveness:
    """Return whether capture is alive, by the best evidence there is.

    lag_limit_seconds: evidence older than this means that nothing is being captured.
    """
    return (
        _judge_heartbeat(heartbeat, status.clock_ahead_seconds, lag_limit_seconds)
        or _judge_scan(status, lag_limit_seconds)
        or _judge_entries(status, lag_limit_seconds)
    )


def _judge_heartbeat(
    heartbeat: Heartbeat | None, clock_ahead_seconds: float, lag_limit_seconds: float
) -> Liveness | None:
    """Return the judgement, None where the last beat is still on its way, or too long ago, to prove anything."""
    if heartbeat is None:
        return None
    beaten, waited = (
        max((heartbeat.taken_at - at).total_seconds() - clock_ahead_seconds, 0.0)
        for at in (heartbeat.beaten_at, heartbeat.waiting_since)
    )
    if heartbeat.has_arrived:
        words = f"the beat written {beaten:.0f} s ago has arrived."
        return Liveness(True, Evidence.HEARTBEAT, words) if beaten <= lag_limit_seconds else None
    if waited > lag_limit_seconds:
        return Liveness(False, Evidence.HEARTBEAT, f"none of the beats written in the last {waited:.0f} s has arrived.")
    return None


def _judge_scan(status: CaptureJobStatus, lag_limit_seconds: float) -> Liveness | None:
    scan = status.scan
    if scan is None:
        return None
    if scan.errors:
        return Liveness(
            False, Evidence.SCANS, f"the newest log scan failed: {status.error or 'its error is no longer listed'}."
        )
    if scan.ended_at is None:
        return None  # a scan is running: the age of the newest entry shows its progress
    age = status.age_seconds(scan.ended_at)
    if age > lag_limit_seconds:
        return Liveness(False, Evidence.SCANS, f"the newest log scan ended {age:.0f} s ago.")
    if scan.transactions and scan.latency_seconds > lag_limit_seconds:
        words = f"the newest log scan ended {age:.0f} s ago and was {scan.latency_seconds} s behind the commits."
        return Liveness(False, Evidence.SCANS, words)
    return Liveness(True, Evidence.SCANS, f"the newest log scan ended {age:.0f} s ago.")


def _judge_entries(status: CaptureJobStatus, lag_limit_seconds: float) -> Liveness:
    age = status.seconds_without_entry
    if age is None:
        return Liveness(None, Evidence.NONE, "nothing has been captured yet.")
    return Liveness(age <= lag_limit_seconds, Evidence.ENTRIES, f"the newest entry of the log is {age:.0f} s old.")


# --------------------------------------------------------------------------------------------------------------------


DEFAULT_LAG_LIMIT_SECONDS = 900.0

INCIDENTS: dict[Verdict, type[FloodmarkError]] = {
    Verdict.OTHER_DATABASE: OtherDatabaseError,
    Verdict.REPLICA_BEHIND: SourceBehindError,
    Verdict.NO_PERMISSION: SourcePermissionError,
    Verdict.INSTANCE_MISSING: CdcNotEnabledError,
    Verdict.DAMAGED: SourceDamagedError,
    Verdict.INSTANCE_REPLACED: InstanceReplacedError,
    Verdict.EXPIRED: WindowExpiredError,
    Verdict.AHEAD_OF_SOURCE: SourceRewoundError,
    Verdict.TARGET_LOST: TargetLostError,
    Verdict.NOT_PLANNABLE: TableNotPlannableError,
    Verdict.DEFINITION_CHANGED: DefinitionChangedError,
    Verdict.REFUSED: TableRefusedError,
    Verdict.CAPTURE_STOPPED: CaptureStoppedError,
}
"""The verdicts that end a run with an error, in the order in which the operator should handle them."""


def classify(
    table_snapshot: TableSnapshot,
    snapshot: SourceSnapshot,
    state: TableState | None,
    lag_limit_seconds: float = DEFAULT_LAG_LIMIT_SECONDS,
    planned_stop: PlannedStop | None = None,
    *,
    pipeline: str = "PIPELINE",
    source_name: str = "SOURCE",
) -> Validity:
    """Return the verdict on a table.

    state None: the ledger does not know the table. planned_stop: the one that is in effect; a capture job that does not
    run is then as planned. pipeline, source_name: for the commands in hints.
    """
    known = state or TableState(table_snapshot.table, None, None, consistent=False)
    check = TableCheck(table_snapshot, snapshot, known, lag_limit_seconds, planned_stop, pipeline, source_name)
    verdict = (
        check.elsewhere()
        or check.behind(known.watermark, known.watermark_at)
        or (None if known.consistent else check.behind(known.read_to, known.read_to_at))
        or check.unreadable()
        or check.rewound(known.watermark, known.watermark_at)
    )
    if verdict is None and not known.consistent:
        # The rows of a load may be ahead of the watermark; a source that was taken back to between the two lacks them.
        verdict = check.rewound(known.read_to, known.read_to_at)
    verdict = verdict or check.lost_target()
    if verdict is None and not snapshot.is_synchronous:
        verdict = check.capture()
    return verdict or check.readable()


def classify_read(
    table_snapshot: TableSnapshot,
    snapshot: SourceSnapshot,
    feed: Feed,
    after: Position,
    *,
    to: Position | None = None,
    to_at: datetime | None = None,
    pipeline: str = "PIPELINE",
) -> Validity:
    """Return whether all changes of a finished read above ``after`` were still there when the read ended.

    Cleanup raises the low end before it deletes, so a low end that is still low enough proves it
    (docs/reference/sqlserver_cdc.md, "Windows"). to: where the window ends, with the commit time that it had when
    it was planned: the log must still be the same one.
    """
    state = TableState(table_snapshot.table, after, feed.identity, consistent=False)
    check = TableCheck(table_snapshot, snapshot, state, DEFAULT_LAG_LIMIT_SECONDS, pipeline=pipeline)
    return check.behind(to or after, to_at) or check.unreadable() or check.rewound(to, to_at) or check.readable()


_FROM_CONFIGURATION = {Verdict.NOT_PLANNABLE, Verdict.DEFINITION_CHANGED, Verdict.REFUSED}
"""The verdicts on tables that can be read."""


def incident(pipeline: str, validities: tuple[Validity, ...]) -> FloodmarkError | None:
    """Return one error for all tables whose verdict ends the run, or None.

    Its class is that of the gravest verdict. A sentence that is the same for several tables appears once.
    """
    affected = [validity for validity in validities if validity.verdict in INCIDENTS]
    if not affected:
        return None
    order = list(INCIDENTS)
    affected.sort(key=lambda validity: (order.index(validity.verdict), validity.table))
    kind = INCIDENTS[affected[0].verdict]
    if len(affected) == 1:
        return kind(str(affected[0].table), f"{affected[0].verdict.value}: {affected[0].cause}", affected[0].hint)
    can_be_read = {validity.verdict for validity in affected} & _FROM_CONFIGURATION
    summary = f"{len(affected)} tables cannot be {'loaded' if can_be_read else 'read'}. "
    (hint, *others) = {validity.hint for validity in affected}
    if others:
        return kind(pipeline, summary + join_verdicts(affected))
    return kind(pipeline, summary + join_verdicts(replace(validity, hint="") for validity in affected), hint)


def not_captured(pipeline: str, validities: tuple[Validity, ...]) -> NotCapturedYetError | None:
    """Return the error for tables that the capture job has not reached, or None."""
    waiting = [validity for validity in validities if validity.verdict is Verdict.NOT_CAPTURED_YET]
    if not waiting:
        return None
    return NotCapturedYetError(pipeline, join_verdicts(waiting))


def is_quiet(table_snapshot: TableSnapshot, watermark: Position) -> bool:
    """Return whether the change table certainly has nothing after the watermark."""
    last, after = table_snapshot.last_change, table_snapshot.changes_after
    if last is None or (after is not None and after > watermark):
        return False
    return not isinstance(last, Position) or last <= watermark


def is_unproven(table_snapshot: TableSnapshot, state: TableState | None) -> bool:
    """Return whether the feed may have begun again at the watermark, which nothing shows: the changes prove nothing."""
    feed = table_snapshot.feed
    if feed is None or state is None or state.watermark is None or state.watermark != table_snapshot.restarts_at:
        return False
    return state.identity is None or 0 in (state.identity.store_id, feed.identity.store_id)


def describe_low_end(table_snapshot: TableSnapshot) -> str:
    """Return the low end as text, with its time where the source gave one."""
    at = f" ({table_snapshot.oldest_at:%Y-%m-%d %H:%M:%S} by the source's clock)" if table_snapshot.oldest_at else ""
    return f"{table_snapshot.oldest}{at}"


@dataclass(frozen=True, slots=True)
class TableCheck:
    """The check of one table in one snapshot. Each method is a group of rules: a verdict, or None for the next."""

    table_snapshot: TableSnapshot
    snapshot: SourceSnapshot
    state: TableState
    lag_limit_seconds: float
    planned_stop: PlannedStop | None = None
    pipeline: str = "PIPELINE"
    source_name: str = "SOURCE"

    @property
    def table(self) -> TableName:
        """Return the name of the table."""
        return self.table_snapshot.table

    @property
    def oldest(self) -> Position | None:
        """Return the low end of the feed, None where it has none."""
        return self.table_snapshot.oldest if isinstance(self.table_snapshot.oldest, Position) else None

    @property
    def newest(self) -> Position | None:
        """Return the source's newest LSN, None where it has none."""
        return self.snapshot.newest if isinstance(self.snapshot.newest, Position) else None

    def elsewhere(self) -> Validity | None:
        """Return a verdict where another database answered than the one that the watermark is a position of."""
        known, found = self.state.database, self.snapshot.identity
        if known is None or found is None or self.state.watermark is None:
            return None
        cause = explain_other_database(known, found)
        if cause is None:
            return None
        return self._verdict(
            Verdict.OTHER_DATABASE,
            cause,
            "Correct the connection. Only where the pipeline shall follow this database from now on: "
            f"{command_line('source', 'confirm', self.source_name)}.",
        )

    def behind(self, position: Position | None, committed_at: datetime | None) -> Validity | None:
        """Return a verdict where a replica answered that does not have a position yet: nothing it shows is current."""
        cause = explain_behind(LogEntry(position, committed_at), self.snapshot) if position else None
        if cause is None:
            return None
        return self._verdict(
            Verdict.REPLICA_BEHIND,
            cause,
            "If it persists, check the synchronisation of the replica, or name another server in the connection.",
        )

    def unreadable(self) -> Validity | None:
        """Return a verdict where the table cannot be read at all."""
        if found := self.missing() or self.replaced():
            return found
        return (None if self.snapshot.is_synchronous else self.not_captured()) or self.out_of_range() or self.faulty()

    def missing(self) -> Validity | None:
        """Return a verdict where the database, the table, the right or the feed is missing."""
        table, words, database = self.table_snapshot, self.snapshot.words, self.snapshot.database
        if not self.snapshot.cdc_enabled:
            return self._say(Verdict.INSTANCE_MISSING, words.not_enabled(database))
        if not self.table_snapshot.exists:
            return self._verdict(
                Verdict.INSTANCE_MISSING,
                f"there is no such table in database {database}, or the login may not see it.",
                "Check the table's name in pipelines.yaml, and grant SELECT on it.",
            )
        if not self.table_snapshot.permitted:
            return self._say(Verdict.NO_PERMISSION, words.no_permission())
        if self.table_snapshot.feed is None:
            return self._say(
                Verdict.INSTANCE_MISSING, words.no_feed(table.searched_for, table.others, self.state.identity)
            )
        return None

    def replaced(self) -> Validity | None:
        """Return a verdict where the feed is not the one that was read before."""
        known, found = self.state.identity, self.table_snapshot.feed
        if known is None or found is None or not found.identity.is_successor(known):
            return None
        return self._verdict(
            Verdict.INSTANCE_REPLACED,
            self.snapshot.words.replaced(found.identity, known),
            f"{self._reload()}.",
        )

    def not_captured(self) -> Validity | None:
        """Return a verdict where the capture job has not reached the table."""
        if self.state.watermark is not None and self.oldest is not None and self.newest is not None:
            return None
        if self.oldest is not None and self.newest is not None and self.newest >= self.oldest:
            return None
        feed = self.table_snapshot.feed
        reached = feed is not None and self.newest is not None and self.newest >= feed.start
        if self.table_snapshot.oldest is NoPosition.ZERO and reached:
            return self._verdict(
                Verdict.NO_PERMISSION,
                "the source does not show the login where the capture instance begins.",
                "Grant the login SELECT on all captured columns of the table, and the gating role if there is one.",
            )
        if self.state.watermark is not None:
            return self._verdict(
                Verdict.AHEAD_OF_SOURCE,
                f"the watermark is {self.state.watermark}, but the source has captured nothing.",
                "Check whether the database was restored or moved, and compare it with the target before you continue.",
            )
        if self.snapshot.capture_running is False:
            return self._not_reached()
        return self._verdict(
            Verdict.NOT_CAPTURED_YET,
            "the capture job has not processed sp_cdc_enable_table yet.",
            "This can take five minutes on an idle source; the next run will include the table.",
        )

    def _not_reached(self) -> Validity:
        """Return the verdict where the capture job was stopped before it reached the table."""
        if self.planned_stop is not None:
            return self._verdict(
                Verdict.NOT_CAPTURED_YET,
                "the capture job has not processed sp_cdc_enable_table; it is not running, because of "
                f"{self.planned_stop}.",
                "The first run after the stop will include the table.",
            )
        return self._verdict(
            Verdict.CAPTURE_STOPPED,
            "the capture job has not processed sp_cdc_enable_table, and it is not running.",
            "Start it: sys.sp_cdc_start_job.",
        )

    def out_of_range(self) -> Validity | None:
        """Return a verdict where the watermark is outside the validity interval."""
        watermark = self.state.watermark
        if watermark is None or self.oldest is None or self.newest is None:
            return None
        if self.newest < watermark:
            return self._verdict(
                Verdict.AHEAD_OF_SOURCE,
                f"the watermark {watermark} is above the source's newest {watermark.noun} {self.newest}.",
                "Check whether the database was restored or failed over, and compare it with the target before you "
                "continue.",
            )
        if self.oldest > watermark.next():
            said = self.snapshot.words.expired(watermark, describe_low_end(self.table_snapshot))
            return self._verdict(Verdict.EXPIRED, said.cause, f"{self._reload()}, and {said.hint}")
        return None

    def faulty(self) -> Validity | None:
        """Return a verdict where the kind of source itself has found that the changes cannot be read on."""
        found = self.table_snapshot.fault
        if found is None:
            return None
        hint = f"{self._reload()}, and {found.hint}" if found.hint else f"{self._reload()}."
        return self._verdict(found.verdict, found.cause, hint)

    def rewound(self, position: Position | None, committed_at: datetime | None) -> Validity | None:
        """Return a verdict where the source was taken back, which its newest LSN no longer shows."""
        if position is None or self.oldest is None:
            return None
        cause = explain_rewind(position, committed_at, self.oldest, self.snapshot)
        if cause is None:
            return None
        return self._verdict(
            Verdict.AHEAD_OF_SOURCE,
            cause,
            f"The target may have rows that the source has lost, and may lack others. {self._reload()}.",
        )

    def lost_target(self) -> Validity | None:
        """Return a verdict where the target is not the one that the watermark belongs to."""
        if self.state.watermark is None or not self.state.target_fault:
            return None
        return self._verdict(
            Verdict.TARGET_LOST,
            self.state.target_fault,
            f"{self._reload()}, or restore the targets and the schema floodmark from one backup.",
        )

    def capture(self) -> Validity | None:
        """Return a verdict where capture delivers nothing.

        Captured changes are read whatever the state of the job is; that it does not run shows when they have been read.
        """
        if self.state.watermark is None or self.state.watermark != self.newest:
            return None
        behind = self.snapshot.seconds_behind
        silent = behind is not None and behind > self.lag_limit_seconds
        since = f"The newest entry of the log is {behind:.0f} s old." if behind is not None else ""
        stopped = self.snapshot.capture_running is False or (self.snapshot.capture_running is None and silent)
        if (stopped or silent) and self.planned_stop is not None and self.snapshot.has_agent:
            # A job that was started at the end of the stop needs time to capture a change.
            words = "is not running, because of" if stopped else "is running, but may be idle around"
            return self._verdict(
                Verdict.CAUGHT_UP,
                f"all captured changes have been read; the capture job {words} {self.planned_stop}.",
            )
        if stopped and self.snapshot.is_replica:
            return self._verdict(
                Verdict.CAPTURE_STOPPED,
                f"all changes on this replica have been read, and no new ones arrive. {since}",
                "Check whether the replica is synchronised, and whether the capture job runs on the primary: after a"
                " failover it may have to be created (sys.sp_cdc_add_job).",
            )
        seen = self.snapshot.capture_running is not None
        evidence = f"(evidence: {(Evidence.ACTIVITY if seen else Evidence.ENTRIES).value})"
        if stopped:
            words = "is not running" if seen else "seems not to be running"
            return self._verdict(
                Verdict.CAPTURE_STOPPED,
                f"the capture job {words} {evidence}, and all captured changes have been read. {since}".strip(),
                "Start it (sys.sp_cdc_start_job), and SQL Server Agent if that is not running."
                if self.snapshot.has_agent
                else "The service captures without an Agent: check sys.dm_cdc_errors and sys.dm_cdc_log_scan_sessions.",
            )
        if silent:
            return self._verdict(
                Verdict.CAPTURE_LAGGING,
                f"the capture job is running {evidence} but has delivered nothing new. {since}",
                "A very large transaction or a failing scan delays it: check sys.dm_cdc_errors.",
            )
        return None

    def readable(self) -> Validity:
        """Return the verdict on a table that can be read."""
        watermark, newest = self.state.watermark, self.newest
        if watermark is None:
            return self._verdict(Verdict.NOT_STARTED, f"first load, up to {newest}.")
        if is_unproven(self.table_snapshot, self.state):
            return self._say(Verdict.READY, self.snapshot.words.unproven(watermark))
        if watermark == newest:
            return self._verdict(
                Verdict.CAUGHT_UP, f"the watermark {watermark} is the source's newest {watermark.noun}."
            )
        return self._verdict(Verdict.READY, f"changes after {watermark} up to {newest}.")

    def _reload(self) -> str:
        return f"Reload the table ({command_line('reload', self.pipeline, self.table)}, or on_gap: repair)"

    def _say(self, verdict: Verdict, said: Sentences) -> Validity:
        return self._verdict(verdict, said.cause, said.hint)

    def _verdict(self, verdict: Verdict, cause: str, hint: str = "") -> Validity:
        return Validity(self.table, verdict, cause, hint, self.state.watermark, self.oldest, self.newest)


GAPS = frozenset({Verdict.EXPIRED, Verdict.INSTANCE_REPLACED, Verdict.AHEAD_OF_SOURCE, Verdict.TARGET_LOST})
"""The verdicts that a load of the whole table resolves."""

LEFT_OUT = GAPS | {
    Verdict.NO_PERMISSION,
    Verdict.INSTANCE_MISSING,
    Verdict.DAMAGED,
    Verdict.NOT_PLANNABLE,
    Verdict.DEFINITION_CHANGED,
    Verdict.REFUSED,
}
"""The verdicts that leave a table out of windows. The others go on, and the run fails when they are published."""
