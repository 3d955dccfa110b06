"""The records of the ledger in plain values, and the members that batches carry to it."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from floodmark.core.capture import SourceUser
from floodmark.core.drift import InstanceSwitch, LivingInstance, RowsAtRisk
from floodmark.core.plan import MemberRead, QuarantinedMessage, WindowPlan, WindowState
from floodmark.core.position import Position
from floodmark.core.schema import SourceColumn, TableName
from floodmark.core.settings import DriftPolicy, PipelineSettings
from floodmark.core.shapes import DdlEntry, Difference, Explained, TableShape
from floodmark.core.snapshot import FeedIdentity, SourceSnapshot, TableState, Verdict
from floodmark.core.status import LastWindow
from floodmark.core.verdicts import GAPS
from floodmark.sync.alerts import OpenAlert

if TYPE_CHECKING:
    import pyarrow as pa


# --------------------------------------------------------------------------------------------------------------------
# Records about schema drift, and the source that they come from.


@dataclass(frozen=True, slots=True)
class TableDetails:
    """The details of a capture instance that a snapshot does not have."""

    lost: tuple[str, ...] = ()
    """See ``TableShape``."""
    uncaptured: tuple[SourceColumn, ...] = ()
    """See ``TableShape``."""
    history: tuple[DdlEntry, ...] = ()
    """The whole DDL history of the instance."""

    def captures(self, columns: Sequence[str]) -> bool:
        """Return whether the instance has all of these columns of the table."""
        return not {*self.lost, *(column.name for column in self.uncaptured)} & set(columns)


@dataclass(frozen=True, slots=True)
class DriftFacts:
    """The details of capture instances, read from the source."""

    details: Mapping[str, TableDetails]
    """The requested instances that exist, by name."""
    instances: tuple[LivingInstance, ...]
    """All capture instances that the login may see."""
    user: SourceUser | None = None
    """The login that reads the source; None where a table has no capture instances."""


class DriftSource(Protocol):
    """The details of a source's tables; one connection per call."""

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        """Return the details. asked: capture instances with their source tables; a missing one is left out."""

    def read_risk(self, table: TableName, instance: str, since: Position | None) -> RowsAtRisk:
        """Return the rows at risk of a column that the instance does not capture.

        since: the LSN of the column's DDL, None while it is not known.
        """


@dataclass(frozen=True, slots=True)
class SnapshotDrift:
    """``DriftSource`` for a kind of source whose snapshots have all details."""

    risk: RowsAtRisk

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        return DriftFacts({name: TableDetails() for name in asked}, ())

    def read_risk(self, table: TableName, instance: str, since: Position | None) -> RowsAtRisk:
        return self.risk


@dataclass(frozen=True, slots=True)
class KnownTable:
    """The recorded state of a table."""

    shape: TableShape
    absent: str | None = None
    """The class of the drift that removed the table, None while the table exists."""
    age_seconds: float | None = field(default=None, compare=False)
    """The time since its details were read; None where the ledger was not asked."""


@dataclass(frozen=True, slots=True)
class DriftEvent:
    """One event of the ledger."""

    event_id: int
    source: str
    table: TableName
    identity: FeedIdentity
    explained: Explained
    policies: Mapping[str, DriftPolicy]
    """The policy of each pipeline that reads the table."""
    found_at: datetime
    held: tuple[str, ...] = ()
    """The pipelines in which the event holds the table."""
    proposal: str = ""
    """T-SQL, "" for none."""
    approved_at: datetime | None = None
    approved_by: str | None = None
    reported: bool = False
    """Whether the alert has been raised."""
    is_rejected: bool = False
    """Whether the proposal was rejected."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A table of a pipeline that is held because of an event."""

    pipeline: str
    table: TableName
    event: DriftEvent
    held_at: datetime


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """A difference to be written down, with the policy of each pipeline that reads the table. spelled: how each of them
    spells its name, by which it is held."""

    explained: Explained
    policies: Mapping[str, DriftPolicy] = field(default_factory=dict)
    proposal: str = ""
    spelled: Mapping[str, TableName] = field(default_factory=dict)
    """The table's name as each pipeline spells it. The pipeline's hold uses this name."""


def newest(entries: Sequence[DdlEntry]) -> Position | None:
    """Return the newest LSN of the history."""
    return max((entry.position for entry in entries), default=None)


# --------------------------------------------------------------------------------------------------------------------
# ``DriftCheck``: the check for schema drift at the opening of a window.


@dataclass(frozen=True, slots=True)
class Examined:
    """A snapshot that was compared with the recorded shapes of the tables."""

    snapshot: SourceSnapshot
    """The snapshot without the columns that the tables have lost."""
    holds: Mapping[TableName, Hold]
    """The holds of the pipeline."""


class DriftCheck(Protocol):
    """A comparison of a pipeline's tables with their recorded shapes."""

    def examine(
        self, settings: PipelineSettings, snapshot: SourceSnapshot, states: Mapping[TableName, TableState]
    ) -> Examined:
        """Record what is new in a snapshot, and return it with the pipeline's holds."""

    def drop_staging(self, window_id: int) -> None:
        """Drop the staging tables of a window that is given up or planned again."""


class NoDriftCheck:
    """``DriftCheck`` that finds no drift, and leaves staging tables alone."""

    def examine(
        self, settings: PipelineSettings, snapshot: SourceSnapshot, states: Mapping[TableName, TableState]
    ) -> Examined:
        return Examined(snapshot, {})

    def drop_staging(self, window_id: int) -> None:
        """Do nothing."""


# --------------------------------------------------------------------------------------------------------------------
# Records of windows and their members.


@dataclass(frozen=True, slots=True)
class OpenedWindow:
    """A window with its plan and its state."""

    plan: WindowPlan
    state: WindowState
    is_refused: bool = False
    """It is MERGED, and its checks have refused it as a whole: on a lane where no other table waits for it."""


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
# All records of the ledger about a pipeline, which ``postgres.ledger.status`` reads at once.


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
    verdict_watermark: Position | None = None
    """The watermark when the verdict was given."""
    verdict_newest: Position | None = None
    """The newest position of the source at that time."""

    @property
    def is_read_since(self) -> bool:
        """Return whether a window has read all that the source had when the verdict was given.

        The load that such a verdict asks for leaves the watermark where it was, if the source has had no change since.
        """
        if self.watermark is None or self.verdict_newest is None or self.watermark < self.verdict_newest:
            return False
        return self.watermark != self.verdict_watermark or self._is_loaded_since

    @property
    def _is_loaded_since(self) -> bool:
        if self.verdict not in GAPS | {Verdict.DEFINITION_CHANGED} or self.verdict_seen_at is None:
            return False
        return self.advanced_at is not None and self.advanced_at > self.verdict_seen_at


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
    waiting: Mapping[TableName, int] = field(default_factory=dict)
    """The rows of each table that wait in quarantine."""
