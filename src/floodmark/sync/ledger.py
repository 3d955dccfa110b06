"""The ledger: the record of windows and watermarks. One port per need of a caller; ``Ledger`` is all of them.

All writes are transactions. Every method raises from ``core.errors``.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from floodmark.core.capture import CaptureJobStatus
from floodmark.core.drift.proposals import InstanceSwitch
from floodmark.core.drift.shapes import Difference
from floodmark.core.plan import (
    LoadChunk,
    LoadProgress,
    MemberRead,
    QuarantinedMessage,
    QuarantinedMessages,
    StoredChunk,
    TableCounts,
    TablePlan,
    WindowPlan,
    WindowState,
)
from floodmark.core.planning import NO_MEASURES, PlanMeasures
from floodmark.core.position import Position
from floodmark.core.recovery import Gap
from floodmark.core.schema import TableName
from floodmark.core.settings import Rule
from floodmark.core.snapshot import (
    DatabaseIdentity,
    InstanceIdentity,
    LogEntry,
    MemberMark,
    TableState,
    Validity,
    Verdict,
)
from floodmark.core.status import LastWindow, QuarantinedKey, RuleCount, TableHistory
from floodmark.core.verdicts import Heartbeat
from floodmark.sync.alerts import OpenAlert
from floodmark.sync.drift_ledger import DriftEvent
from floodmark.sync.ports import StagedPart

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class OpenedWindow:
    """A window with its plan and its state."""

    plan: WindowPlan
    state: WindowState
    is_refused: bool = False
    """It is MERGED, and its checks have refused it as a whole: on a lane where no other table waits for it."""


class Windows(Protocol):
    """The plans of windows."""

    def open_window(
        self,
        pipeline: str,
        to_lsn: Position,
        tables: Sequence[TablePlan],
        to_lsn_at: datetime | None = None,
        lane: str = "",
        *,
        measures: PlanMeasures = NO_MEASURES,
    ) -> WindowPlan:
        """Write the plan of a new window, before any row is read.

        Raises WatermarkConflictError when a window of the lane is unfinished, and WindowBusyError when a window of
        another lane holds a table whose watermark this window will move.
        to_lsn_at: commit time of to_lsn, server local time. measures: for the history alone.
        """

    def record_run(self, window_id: int, dag_id: str, run_id: str) -> None:
        """Record the run of Airflow that works on a window, in place of an earlier one."""

    def unfinished_window(self, pipeline: str, lane: str = "") -> OpenedWindow | None:
        """Return the unfinished window of a lane; None where all windows are finished."""

    def list_unfinished(self, pipeline: str) -> Sequence[OpenedWindow]:
        """Return the unfinished windows of all lanes, the oldest first."""

    def read_window(self, window_id: int) -> OpenedWindow:
        """Return a window. Raises OperatorError for an unknown one."""

    def seconds_since_change(self, pipeline: str, source: TableName) -> float | None:
        """Return how long ago the newest window that brought a change of a table, or loaded it, was published.

        None while there is no such window.
        """

    def leave_out(self, window_id: int, tables: Collection[TableName]) -> WindowPlan | None:
        """Remove tables from a window that is still PLANNED; their watermarks do not move.

        A running load of the window can no longer merge. Return None where no table was left; the window is deleted.
        """

    def replace_rules(self, window_id: int, rules: Mapping[TableName, tuple[Rule, ...]]) -> WindowPlan:
        """Replace the rules of a window that is still PLANNED by those given; other tables keep their rules."""


class Loads(Protocol):
    """The attempts at a window, and their results."""

    def hold_load(self, window_id: int) -> AbstractContextManager[None]:
        """Keep other processes from loading the window during the block, as long as this process lives.

        Raises WindowBusyError when another process loads it. A hold that is lost with its connection does no harm:
        attempts still fence loads off from each other.
        """

    def begin_load(self, window_id: int) -> OpenedWindow:
        """Start a new attempt at a PLANNED window; loads with the plan of an earlier attempt can no longer merge.

        A window in a later state is returned unchanged.
        """

    def extend_window(self, plan: WindowPlan, end: LogEntry) -> WindowPlan:
        """Move the end of a PLANNED window without first loads up to what its load has read. Return the plan.

        Refuses all attempts but the latest.
        """

    def record_reads(
        self,
        plan: WindowPlan,
        read_rows: Mapping[TableName, int],
        read_finished_at: datetime | None = None,
        read_lsn: Position | None = None,
        read_lsn_at: datetime | None = None,
        *,
        members: Mapping[TableName, Sequence[MemberRead]] | None = None,
    ) -> None:
        """Record the rows read per table, before the merge. Refuses all attempts but the latest.

        members: the examined members of feeds that have some. Their verdicts count at once, their marks move when the
        window advances.

        read_finished_at: the server local time after which no row was committed that was read, for the consistency of
        first loads; None where no row is newer than read_lsn. read_lsn: the newest LSN at that time. read_lsn_at: its
        commit time.
        """

    def record_merge(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, TableCounts]:
        """Set a window to MERGED, with its counts, where the warehouse has not done so itself.

        Return the counts with the recorded number of rows read. Refuses all attempts but the latest.
        """

    def read_counts(self, window_id: int) -> Mapping[TableName, TableCounts]:
        """Return the counts of a merged window."""


class Chunks(Protocol):
    """The chunks of first loads, which are kept between attempts."""

    def list_chunks(self, window_id: int, source: TableName) -> Sequence[StoredChunk]:
        """Return the chunks of a first load by number; [] where none are planned."""

    def store_chunks(self, plan: WindowPlan, source: TableName, chunks: Sequence[LoadChunk]) -> Sequence[StoredChunk]:
        """Store the chunks of a first load, once per window: existing chunks are kept and returned.

        Refuses all attempts but the latest.
        """

    def record_staged(self, plan: WindowPlan, source: TableName, parts: Sequence[StagedPart]) -> None:
        """Record chunks that are in staging, where the warehouse has not done so itself.

        Refuses all attempts but the latest.
        """

    def reset_chunks(self, plan: WindowPlan, source: TableName, numbers: Collection[int]) -> None:
        """Mark chunks to be read again. Refuses all attempts but the latest."""

    def read_load_progress(self, window_id: int) -> Mapping[TableName, LoadProgress]:
        """Return the progress of the tables of a window whose chunks are planned."""


class Watermarks(Protocol):
    """The positions up to which tables are complete. A watermark moves by compare-and-set only."""

    def ensure_schema(self) -> None:
        """Create the ledger's tables where they are missing. Several processes may do so at once."""

    def read_tables(self, pipeline: str) -> Mapping[TableName, TableState]:
        """Return the states of the tables that runs of the pipeline have registered."""

    def mark_checked(self, window_id: int) -> None:
        """Set a MERGED window to CHECKED; a later state is kept. Raises OperatorError for a PLANNED window."""

    def advance(self, window_id: int) -> Mapping[TableName, TableCounts]:
        """Move every table's watermark from the planned one to ``to_lsn`` and finish the window, in one transaction.

        A replay and a reload of some rows move none. Repeating it is harmless. Raises WatermarkConflictError when a
        watermark is neither the planned one nor to_lsn.
        """

    def delete_old_windows(self, pipeline: str, keep_seconds: float, at_most: int) -> int:
        """Delete some published windows that are older, with their counts. Return how many.

        The totals of a table stay, and so do the newest window of each table and the loads of whole tables.
        """

    def advance_quiet(
        self,
        pipeline: str,
        to_lsn: Position,
        watermarks: Mapping[TableName, Position],
        to_lsn_at: datetime | None = None,
        instances: Mapping[TableName, InstanceIdentity] | None = None,
    ) -> None:
        """Move watermarks over an interval of the log without changes of these tables, without a window.

        instances: the capture instances that have no change there; another instance may have some.
        Raises WatermarkConflictError when a watermark is not the given one, a table has left its capture instance, or a
        window of the main lane is unfinished, and WindowBusyError when a load lane holds one of the tables.
        """


class Verdicts(Protocol):
    """The verdicts of runs on each table, and the gaps that a load has not closed yet."""

    def record_verdicts(self, pipeline: str, validities: Sequence[Validity]) -> None:
        """Record the verdict on each table, with its cause and its hint."""

    def refuse_tables(self, plan: WindowPlan, refused: Sequence[Validity]) -> WindowPlan | None:
        """Record the verdicts on tables that a load refuses, and remove them from its window, in one transaction.

        The attempt stays the same, so that what it has staged of the others is merged. Return the plan that is left;
        None where no other table is left: the window then stays as it is. Refuses all attempts but the latest.
        """

    def refuse_merged(self, window_id: int, refused: Sequence[Validity]) -> WindowPlan | None:
        """Record the verdicts on tables that the checks refuse, and remove them from their MERGED window, in one
        transaction.

        Return the plan that is left; None where no other table is left: the window then stays as it is, so that it can
        be checked again. A window in another state is returned unchanged.
        """

    def mark_refused(self, window_id: int) -> None:
        """Record that the checks refused a window of another lane than the main one, which is still MERGED."""

    def drop_merged(self, window_id: int) -> None:
        """Delete a window that is still MERGED and whose tables have all been refused; no watermark moves."""

    def record_gap(self, pipeline: str, gap: Gap, watermark: Position | None) -> None:
        """Record a gap. It is kept until a load of the whole table has closed it. A table has one gap at a time.

        watermark: the watermark of the table at the check. Nothing is recorded where it has moved since.
        """

    def list_stopped(self, pipeline: str) -> Sequence[Validity]:
        """Return the recorded verdicts that leave a table out, without tables that are being reloaded or have been."""


class Members(Protocol):
    """The members of feeds that have a position each (``core.plan``)."""

    def list_stopped_members(self, pipeline: str) -> Sequence[tuple[TableName, Validity]]:
        """Return the verdicts of the last loads that leave a member out, each with the table that it is a member of."""

    def count_quarantined_messages(self, pipeline: str) -> QuarantinedMessages:
        """Return how many messages of the pipeline are in quarantine, by reason."""

    def list_marks(self, pipeline: str) -> Mapping[TableName, Sequence[MemberMark]]:
        """Return the marks of the members of each table that has members."""

    def forget_mark(self, pipeline: str, source: TableName, member: str) -> None:
        """Let the next window read all rows of a member. Raises OperatorError for one that no load has examined."""


class Databases(Protocol):
    """The source database that the watermarks of a pipeline are positions of, and the name of the pipeline."""

    def read_database(self, pipeline: str) -> DatabaseIdentity | None:
        """Return the database that a pipeline follows; None where none is recorded."""

    def record_database(self, pipeline: str, known: DatabaseIdentity | None, found: DatabaseIdentity) -> None:
        """Record the database of a pipeline.

        Where another one than ``known`` is recorded, and a watermark was read from it, nothing happens.
        """

    def confirm_database(self, pipeline: str, found: DatabaseIdentity, confirmed_by: str) -> None:
        """Record the decision of an operator that a pipeline follows this database from now on."""

    def rename_pipeline(self, name: str, to: str) -> Sequence[TableName]:
        """Give all that is recorded of a pipeline another name, and return its tables.

        Raises OperatorError for a pipeline without tables or a name that has tables, WindowBusyError while a load of
        the pipeline runs.
        """

    def rename_target(self, pipeline: str, source: TableName, to: TableName) -> TableName:
        """Give all that is recorded of a table's target another name, and return the one before.

        The target itself has it already, or gets it before the next merge. Raises OperatorError for a table that is not
        known or has the name, and for the target of another table; WindowBusyError while a load of the pipeline runs.
        """


class Ledger(Windows, Loads, Chunks, Watermarks, Verdicts, Members, Databases, Protocol):
    """All ports of the ledger."""


# --------------------------------------------------------------------------------------------------------------------
# How a reader says which members of a table it has read: in the metadata of the batches with their rows.
#
# So the position of a member travels with the rows that it is the position of.


_KEY = b"floodmark.members"


def attach_members(batch: pa.RecordBatch, reads: Sequence[MemberRead]) -> pa.RecordBatch:
    """Return a batch, which may be empty, that says which members are read with its rows and those before it."""
    return batch.replace_schema_metadata({_KEY: format_members(reads).encode()})


def noted(batches: Iterable[pa.RecordBatch], reads: list[MemberRead]) -> Iterator[pa.RecordBatch]:
    """Yield batches, and add to ``reads`` what they say about members."""
    for batch in batches:
        if found := (batch.schema.metadata or {}).get(_KEY):
            reads += parse_members(found.decode())
        yield batch


def format_members(reads: Sequence[MemberRead]) -> str:
    """Return a text that ``parse_members`` reads."""
    rows = [
        [
            read.member,
            read.before,
            read.after,
            read.is_whole,
            read.verdict and read.verdict.value,
            read.cause,
            read.hint,
            [[each.place, each.reason, _to_text(each.body), each.topic] for each in read.quarantined],
        ]
        for read in reads
    ]
    return json.dumps(rows)


def parse_members(text: str) -> list[MemberRead]:
    """Return what ``format_members`` wrote."""
    return [
        MemberRead(
            member,
            before,
            after,
            is_whole,
            Verdict(verdict) if verdict else None,
            cause,
            hint,
            tuple(
                QuarantinedMessage(place, reason, _to_bytes(body), topic) for place, reason, body, topic in quarantined
            ),
        )
        for member, before, after, is_whole, verdict, cause, hint, quarantined in json.loads(text)
    ]


def _to_text(body: bytes | None) -> str | None:
    return None if body is None else b64encode(body).decode()


def _to_bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


# --------------------------------------------------------------------------------------------------------------------
# The ports for managing the capture job. Adapters: ``sources.cdc.operations``, ``postgres.ledger.ledger``.
#
# Every method raises from ``core.errors``.


class CaptureControl(Protocol):
    """The capture job of one source. Needs db_owner there."""

    def read_capture(self) -> CaptureJobStatus:
        """Return the current status of the capture job."""

    def start_capture(self) -> None:
        """Start the job and return when it runs. Harmless where it already runs."""

    def stop_capture(self) -> None:
        """Stop the job and return when it no longer runs. Harmless where it does not run."""

    def change_capture(self, changes: Mapping[str, int]) -> None:
        """Change parameters of sys.sp_cdc_change_job, by name. A running job uses them after its next start."""

    def read_heartbeat(self, table: TableName) -> Heartbeat:
        """Return the heartbeat. Raises CdcNotEnabledError where the table does not exist or is not captured."""

    def beat(self, table: TableName, *, afresh: bool) -> None:
        """Write the next beat. afresh: all earlier beats have arrived or no longer count."""


class StopLedger(Protocol):
    """A record of the planned stops that were ended early. A stop is identified by its source and its planned start."""

    def read_ended_stop(self, source: str, since: datetime) -> str:
        """Return why a stop was ended early, "" where it was not."""

    def record_ended_stop(self, source: str, since: datetime, reason: str) -> None:
        """Record why a stop was ended early. Repeating it is harmless: the first reason is kept."""


# --------------------------------------------------------------------------------------------------------------------
# ``StatusLedger``: all records of the ledger about a pipeline, read at once.


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """The recorded state of a table of a pipeline."""

    watermark: Position | None
    watermark_at: datetime | None
    consistent: bool
    verdict: Verdict | None
    cause: str
    hint: str
    verdict_since: datetime | None
    verdict_seen_at: datetime | None
    windows: int
    """The number of published windows, without replays. The row counts are totals over these windows."""
    read_rows: int
    inserted_rows: int
    updated_rows: int
    deleted_rows: int
    quarantined_rows: int
    advanced_at: datetime | None
    last_window: LastWindow | None


@dataclass(frozen=True, slots=True)
class RecordedHold:
    """A difference for which a table is held."""

    difference: Difference
    event_id: int
    held_at: datetime


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """The content of the ledger. Everything is empty where no run has created the ledger."""

    tables: Mapping[TableName, RecordedTable]
    holds: Mapping[TableName, RecordedHold]
    """The oldest hold of each held table."""
    alerts: Sequence[OpenAlert]
    """The open alerts about all subjects, the oldest first."""
    events: Sequence[DriftEvent]
    """The drift events of the source."""
    switches: Sequence[InstanceSwitch]
    """The switches of the source that are in progress."""


class StatusLedger(Protocol):
    """A reader of the ledger that does not create one."""

    def read_status(self, pipeline: str, source: str) -> StatusRecord:
        """Return the record of a pipeline. source: the name of its source in the configuration."""

    def read_history(self, pipeline: str, table: TableName, at_most: int) -> TableHistory:
        """Return the last windows, gaps and quarantined rules of a table, without its drift. Empty without a ledger."""

    def list_quarantined(self, pipeline: str) -> Sequence[RuleCount]:
        """Return what is in quarantine, the newest first. Empty without a ledger."""

    def list_quarantined_keys(
        self, pipeline: str, table: TableName, rule: str | None, *, skipped: int, at_most: int
    ) -> Sequence[QuarantinedKey]:
        """Return rows of a table in quarantine, the newest first. rule: only of this one. Empty without a ledger."""
