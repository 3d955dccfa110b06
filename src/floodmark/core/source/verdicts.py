"""The verdict on a table: whether its next window may be read, and if not, why and what to do.

Nothing is ever skipped to make a window readable. Two facts of the server shape the rules: ``fn_cdc_get_min_lsn`` is
NULL, or zero, until the capture job has processed the enabling of the table, and zero for who may not see the instance
(docs/reference/sqlserver_cdc.md, "Scalar functions"); and an idle source still makes an entry in
``cdc.lsn_time_mapping`` every five minutes, so that a log without new entries means a capture job that does not run,
and not a database without work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from floodmark.core.errors import (
    CaptureStoppedError,
    CdcNotEnabledError,
    FloodmarkError,
    InstanceReplacedError,
    NotCapturedYetError,
    SourcePermissionError,
    SourceRewoundError,
    WindowExpiredError,
)
from floodmark.core.lsn import Lsn, LsnAbsence
from floodmark.core.schema import TableName
from floodmark.core.source.capture_status import PlannedStop
from floodmark.core.source.feed import Feed
from floodmark.core.source.history import explain_rewind
from floodmark.core.source.liveness import Evidence
from floodmark.core.source.scripts import literal
from floodmark.core.source.snapshot import (
    InstanceIdentity,
    SourceSnapshot,
    TableSnapshot,
    Validity,
    Verdict,
    join_verdicts,
)
from floodmark.core.source.state import TableState

DEFAULT_LAG_LIMIT_SECONDS = 900.0

INCIDENTS: dict[Verdict, type[FloodmarkError]] = {
    Verdict.NO_PERMISSION: SourcePermissionError,
    Verdict.INSTANCE_MISSING: CdcNotEnabledError,
    Verdict.INSTANCE_REPLACED: InstanceReplacedError,
    Verdict.EXPIRED: WindowExpiredError,
    Verdict.AHEAD_OF_SOURCE: SourceRewoundError,
    Verdict.CAPTURE_STOPPED: CaptureStoppedError,
}
"""The verdicts that end a run with an error, in the order in which somebody should look at them."""


def classify(
    table_snapshot: TableSnapshot,
    snapshot: SourceSnapshot,
    state: TableState | None,
    lag_limit_seconds: float = DEFAULT_LAG_LIMIT_SECONDS,
    planned_stop: PlannedStop | None = None,
    *,
    pipeline: str = "PIPELINE",
) -> Validity:
    """state None: the ledger has never heard of the table. planned_stop: the one that is on; a capture job that does
    not run is then what was wanted. pipeline: for the commands that are advised."""
    known = state or TableState(table_snapshot.table, None, None, consistent=False)
    check = TableCheck(table_snapshot, snapshot, known, lag_limit_seconds, planned_stop, pipeline)
    verdict = check.unreadable() or check.rewound(known.watermark, known.watermark_at)
    if verdict is None and not known.consistent:
        # What a load has read may be ahead of the watermark; a source that was taken back to between them lacks it.
        verdict = check.rewound(known.read_lsn, known.read_lsn_at)
    return verdict or check.capture() or check.readable()


def classify_read(
    table_snapshot: TableSnapshot, snapshot: SourceSnapshot, instance: Feed, after_lsn: Lsn, *,
    to_lsn: Lsn | None = None, to_lsn_at: datetime | None = None, pipeline: str = "PIPELINE",
) -> Validity:  # fmt: skip
    """Whether what was just read after ``after_lsn`` from ``instance`` was still all there when the read ended.

    Cleanup raises the low end before it deletes, so a low end that is still low enough proves it
    (docs/reference/sqlserver_cdc.md, "Windows").
    to_lsn: where the window ends, with the commit time that it had when it was planned: the log must be that one still.
    """
    state = TableState(table_snapshot.table, after_lsn, instance.identity, consistent=False)
    check = TableCheck(table_snapshot, snapshot, state, DEFAULT_LAG_LIMIT_SECONDS, pipeline=pipeline)
    return check.unreadable() or check.rewound(to_lsn, to_lsn_at) or check.readable()


def incident(pipeline: str, validities: tuple[Validity, ...]) -> FloodmarkError | None:
    """One error for all tables whose verdict ends the run, or None. Its class is that of the gravest verdict. What is
    the same for several tables is said once."""
    affected = [validity for validity in validities if validity.verdict in INCIDENTS]
    if not affected:
        return None
    order = list(INCIDENTS)
    affected.sort(key=lambda validity: (order.index(validity.verdict), validity.table))
    kind = INCIDENTS[affected[0].verdict]
    if len(affected) == 1:
        return kind(str(affected[0].table), f"{affected[0].verdict.value}: {affected[0].cause}", affected[0].hint)
    summary = f"{len(affected)} tables cannot be read. "
    (hint, *others) = {validity.hint for validity in affected}
    if others:
        return kind(pipeline, summary + join_verdicts(affected))
    return kind(pipeline, summary + join_verdicts(replace(validity, hint="") for validity in affected), hint)


def not_captured(pipeline: str, validities: tuple[Validity, ...]) -> NotCapturedYetError | None:
    """The error for tables that the capture job has not reached, or None."""
    waiting = [validity for validity in validities if validity.verdict is Verdict.NOT_CAPTURED_YET]
    if not waiting:
        return None
    return NotCapturedYetError(pipeline, join_verdicts(waiting))


def is_quiet(table_snapshot: TableSnapshot, watermark: Lsn) -> bool:
    """Whether the change table surely holds nothing after the watermark."""
    last = table_snapshot.last_change_lsn
    if last is None:
        return False
    return not isinstance(last, Lsn) or last <= watermark


def describe_low_end(table_snapshot: TableSnapshot) -> str:
    """With its time, where the source told it."""
    at = f" ({table_snapshot.min_lsn_at:%Y-%m-%d %H:%M:%S} by the source's clock)" if table_snapshot.min_lsn_at else ""
    return f"{table_snapshot.min_lsn}{at}"


@dataclass(frozen=True, slots=True)
class TableCheck:
    """One table in one snapshot. Each method is one group of rules: a verdict, or None to ask the next."""

    table_snapshot: TableSnapshot
    snapshot: SourceSnapshot
    state: TableState
    lag_limit_seconds: float
    planned_stop: PlannedStop | None = None
    pipeline: str = "PIPELINE"

    @property
    def table(self) -> TableName:
        return self.table_snapshot.table

    @property
    def min_lsn(self) -> Lsn | None:
        return self.table_snapshot.min_lsn if isinstance(self.table_snapshot.min_lsn, Lsn) else None

    @property
    def max_lsn(self) -> Lsn | None:
        return self.snapshot.max_lsn if isinstance(self.snapshot.max_lsn, Lsn) else None

    def unreadable(self) -> Validity | None:
        return self.missing() or self.replaced() or self.not_captured() or self.out_of_range()

    def missing(self) -> Validity | None:
        database = self.snapshot.database
        if not self.snapshot.cdc_enabled:
            return self._verdict(
                Verdict.INSTANCE_MISSING, f"change data capture is not enabled in database {database}.",
                "Run sys.sp_cdc_enable_db there, then sys.sp_cdc_enable_table for the table.",
            )  # fmt: skip
        if not self.table_snapshot.exists:
            return self._verdict(
                Verdict.INSTANCE_MISSING,
                f"there is no such table in database {database}, or the login may not see it.",
                "Check its name in pipelines.yaml, and grant SELECT on it.",
            )  # fmt: skip
        if not self.table_snapshot.permitted:
            return self._verdict(
                Verdict.NO_PERMISSION, "the login may not read the table's capture instance.",
                "Grant it SELECT on the table and on its change table, and the gating role if there is one.",
            )  # fmt: skip
        if self.table_snapshot.instance is None:
            return self._no_instance()
        return None

    def _no_instance(self) -> Validity:
        """The name matters: a table that is enabled without one gets an instance that nobody looks for."""
        others, read = self.table_snapshot.others, self.state.identity
        name = self.table_snapshot.searched_for or (read.name if read else None)
        found = f"the table has {' and '.join(others)}, but not the" if others else "the table has no"
        was = f" Capture instance {read.name} was read before." if read else ""
        named = f" with @capture_instance = {literal(name)}" if name else ""
        instead = f", or have {others[0]} read: capture_instance: {others[0]} in pipelines.yaml" if others else ""
        return self._verdict(
            Verdict.INSTANCE_MISSING,
            f"{found} capture instance{f' {name}' if name else ''} that could be read.{was}",
            f"Run sys.sp_cdc_enable_table for it{named}{instead}."
            + (" What was changed since the watermark is only in the table itself." if was else ""),
        )

    def replaced(self) -> Validity | None:
        known, found = self.state.identity, self.table_snapshot.instance
        if known is None or found is None or known == found.identity:
            return None
        return self._verdict(
            Verdict.INSTANCE_REPLACED,
            f"capture instance {_describe(found.identity)} is not {_describe(known)}, which was read before.",
            f"Changes between the two are in neither. {self._reload()}.",
        )

    def not_captured(self) -> Validity | None:
        if self.state.watermark is not None and self.min_lsn is not None and self.max_lsn is not None:
            return None
        if self.min_lsn is not None and self.max_lsn is not None and self.max_lsn >= self.min_lsn:
            return None
        instance = self.table_snapshot.instance
        reached = instance is not None and self.max_lsn is not None and self.max_lsn >= instance.start_lsn
        if self.table_snapshot.min_lsn is LsnAbsence.ZERO and reached:
            return self._verdict(
                Verdict.NO_PERMISSION, "the source does not tell the login where the capture instance begins.",
                "Grant it SELECT on all captured columns of the table, and the gating role if there is one.",
            )  # fmt: skip
        if self.state.watermark is not None:
            return self._verdict(
                Verdict.AHEAD_OF_SOURCE,
                f"the watermark is {self.state.watermark}, but the source has captured nothing at all.",
                "Was the database restored or moved? Compare it with the target before you go on.",
            )  # fmt: skip
        if self.snapshot.capture_running is False:
            return self._not_reached()
        return self._verdict(
            Verdict.NOT_CAPTURED_YET, "the capture job has not processed the table's enabling yet.",
            "That takes up to five minutes on a quiet source; the next run takes the table along.",
        )  # fmt: skip

    def _not_reached(self) -> Validity:
        """The capture job was stopped before it came to the table."""
        if self.planned_stop is not None:
            return self._verdict(
                Verdict.NOT_CAPTURED_YET,
                f"the capture job has not processed the table's enabling; it does not run for {self.planned_stop}.",
                "The first run after that takes the table along.",
            )
        return self._verdict(
            Verdict.CAPTURE_STOPPED, "the capture job has not processed the table's enabling, and it does not run.",
            "Start it: sys.sp_cdc_start_job.",
        )  # fmt: skip

    def out_of_range(self) -> Validity | None:
        watermark = self.state.watermark
        if watermark is None or self.min_lsn is None or self.max_lsn is None:
            return None
        if self.max_lsn < watermark:
            return self._verdict(
                Verdict.AHEAD_OF_SOURCE, f"the watermark {watermark} is above the source's newest LSN {self.max_lsn}.",
                "Was the database restored or failed over? Compare it with the target before you go on.",
            )  # fmt: skip
        if self.min_lsn > watermark.next():
            return self._verdict(
                Verdict.EXPIRED,
                f"changes after the watermark {watermark} have been cleaned up: the low end is "
                f"{describe_low_end(self.table_snapshot)}.",
                f"{self._reload()}, and raise the retention (sys.sp_cdc_change_job) or run more often.",
            )  # fmt: skip
        return None

    def rewound(self, position: Lsn | None, committed_at: datetime | None) -> Validity | None:
        """The source was taken back, which its newest LSN does not show any more."""
        if position is None or self.min_lsn is None:
            return None
        cause = explain_rewind(position, committed_at, self.min_lsn, self.snapshot)
        if cause is None:
            return None
        return self._verdict(
            Verdict.AHEAD_OF_SOURCE, cause,
            f"The target may have rows that the source has lost, and would lack others. {self._reload()}.",
        )  # fmt: skip

    def capture(self) -> Validity | None:
        """What has been captured of the table is read whatever the job does; that it does not run shows afterwards."""
        if self.state.watermark is None or self.state.watermark != self.max_lsn:
            return None
        behind = self.snapshot.seconds_behind
        silent = behind is not None and behind > self.lag_limit_seconds
        since = f"The newest entry of the log is {behind:.0f} s old." if behind is not None else ""
        stopped = self.snapshot.capture_running is False or (self.snapshot.capture_running is None and silent)
        if (stopped or silent) and self.planned_stop is not None and self.snapshot.has_agent:
            # A job that was started at the end of the stop has its time to come upon something.
            words = "does not run for" if stopped else "runs, and may bring nothing for a while around"
            return self._verdict(
                Verdict.CAUGHT_UP,
                f"all that was captured has been read; the capture job {words} {self.planned_stop}.",
            )
        if stopped and self.snapshot.is_replica:
            return self._verdict(
                Verdict.CAPTURE_STOPPED, f"all that has come to this replica has been read, and nothing comes. {since}",
                "See whether the replica gets what the primary writes, and whether the capture job runs there: after a"
                " failover it may have to be made (sys.sp_cdc_add_job).",
            )  # fmt: skip
        seen = self.snapshot.capture_running is not None
        evidence = f"(evidence: {(Evidence.ACTIVITY if seen else Evidence.ENTRIES).value})"
        if stopped:
            words = "does not run" if seen else "seems not to run"
            return self._verdict(
                Verdict.CAPTURE_STOPPED,
                f"the capture job {words} {evidence}, and all that it captured has been read. {since}".strip(),
                "Start it (sys.sp_cdc_start_job), and SQL Server Agent if that is down."
                if self.snapshot.has_agent
                else "The service captures by itself: see sys.dm_cdc_errors and sys.dm_cdc_log_scan_sessions.",
            )  # fmt: skip
        if silent:
            return self._verdict(
                Verdict.CAPTURE_LAGGING, f"the capture job runs {evidence} but has brought nothing new. {since}",
                "A huge transaction or a failing scan holds it up; see sys.dm_cdc_errors.",
            )  # fmt: skip
        return None

    def readable(self) -> Validity:
        watermark, max_lsn = self.state.watermark, self.max_lsn
        if watermark is None:
            return self._verdict(Verdict.NOT_STARTED, f"first load, up to {max_lsn}.")
        if watermark == max_lsn:
            return self._verdict(Verdict.CAUGHT_UP, f"the watermark {watermark} is the source's newest LSN.")
        return self._verdict(Verdict.READY, f"changes after {watermark} up to {max_lsn}.")

    def _reload(self) -> str:
        return f"Load the table anew (floodmark reload {self.pipeline} {self.table}, or on_gap: repair)"

    def _verdict(self, verdict: Verdict, cause: str, hint: str = "") -> Validity:
        return Validity(self.table, verdict, cause, hint, self.state.watermark, self.min_lsn, self.max_lsn)


def _describe(identity: InstanceIdentity) -> str:
    return f"{identity.name} (object {identity.object_id}, made {identity.created_at:%Y-%m-%d %H:%M:%S})"


GAPS = frozenset({Verdict.EXPIRED, Verdict.INSTANCE_REPLACED, Verdict.AHEAD_OF_SOURCE})
"""The verdicts that a load of the whole table mends."""
