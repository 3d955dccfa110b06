"""Capture instances, what the source said of them in one look, and the verdict on reading from one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from floodmark.core.lsn import Lsn, LsnAbsence
from floodmark.core.schema import SourceTable, TableName


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """What makes a capture instance this one and not a successor of the same name.

    start_lsn is not part of it: cleanup raises that. ``created_at`` is the server's local time.
    """

    name: str
    object_id: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CaptureInstance:
    """A capture instance as ``sys.sp_cdc_help_change_data_capture`` shows it, with its captured columns."""

    identity: InstanceIdentity
    table: SourceTable
    start_lsn: Lsn
    supports_net_changes: bool
    has_command_id: bool


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One table in a ``SourceSnapshot``. ``instance`` None: no instance, no such table or no right (see the flags).

    min_lsn: ``sys.fn_cdc_get_min_lsn`` of the instance. last_change_lsn: the highest ``__$start_lsn`` in its change
    table, ``LsnAbsence.NULL`` when that is empty, None when the login may not look. It must be asked for after max_lsn:
    a table counts as quiet when its last change is not above the watermark, and no change captured in between may be
    missed. min_lsn_at: commit time of min_lsn, server local time. max_column_id: the table's highest column_id; ids are
    never used again, so it tells an added column. looked_for: the name of the instance that was asked for, None for
    any; others: those that the table has in its place, where there is none of that name. server_name: as the source
    spells the table, None where there is none.
    """

    table: TableName
    exists: bool
    instance: CaptureInstance | None
    min_lsn: Lsn | LsnAbsence
    permitted: bool = True
    last_change_lsn: Lsn | LsnAbsence | None = None
    max_column_id: int = 0
    min_lsn_at: datetime | None = None
    searched_for: str | None = None
    others: tuple[str, ...] = ()
    server_name: TableName | None = None


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """What the source said in one round trip. ``scan`` fields are None where the login may not see them.

    max_lsn_at: commit time of max_lsn; taken_at: when the server answered; both server local time.
    seconds_behind: age of the newest lsn_time_mapping entry; at least so much, where the server's clock was set since.
    capture_running: whether the capture job runs, None when that cannot be known, or when the job has a schedule of its
    own and stands still between two scans. has_agent: whether there is a job that can be stopped at all.
    clock_ahead_seconds, clock_back_seconds: by how much the server's clock was set forward, or back, in the last two
    hours. is_replica: it is a copy that only can be read, and what its server says of jobs says nothing of those of the
    primary.
    entries: of each position that was asked about, the commit time that the log has for exactly that LSN, None where it
    has none. They must be asked for before the low ends (see ``core.history``).
    """

    database: str
    cdc_enabled: bool
    max_lsn: Lsn | LsnAbsence
    max_lsn_at: datetime | None
    taken_at: datetime
    seconds_behind: float | None
    capture_running: bool | None
    tables: tuple[TableSnapshot, ...]
    entries: Mapping[Lsn, datetime | None] = field(default_factory=dict)
    has_agent: bool = True
    clock_ahead_seconds: float = 0.0
    clock_back_seconds: float = 0.0
    is_replica: bool = False

    @property
    def latest_commit_at(self) -> datetime:
        """No commit until now has a later time. Where the clock was set back, those of before may seem yet to come."""
        return self.taken_at + timedelta(seconds=self.clock_back_seconds)


class Verdict(Enum):
    """Whether a table's next window may be read, and if not, why. Only READY moves rows."""

    READY = "ready"
    CAUGHT_UP = "caught_up"
    NOT_STARTED = "not_started"
    """No watermark yet: the table needs its first load."""
    EXPIRED = "expired"
    AHEAD_OF_SOURCE = "ahead_of_source"
    NOT_CAPTURED_YET = "not_captured_yet"
    INSTANCE_MISSING = "instance_missing"
    INSTANCE_REPLACED = "instance_replaced"
    NO_PERMISSION = "no_permission"
    CAPTURE_STOPPED = "capture_stopped"
    CAPTURE_LAGGING = "capture_lagging"
    HELD = "held"
    """Left out of the pipeline's windows because of a schema drift, until somebody ends the hold."""
    REPAIRING = "repairing"
    """Left out of the pipeline's windows while another window loads it anew; the old rows stay readable."""


@dataclass(frozen=True, slots=True)
class Validity:
    """A verdict with its cause, the numbers behind it, and what to do. ``str()`` is the sentence for a log."""

    table: TableName
    verdict: Verdict
    cause: str
    hint: str = ""
    watermark: Lsn | None = None
    min_lsn: Lsn | None = None
    max_lsn: Lsn | None = None

    def __str__(self) -> str:
        return f"{self.table}: {self.verdict.value}: {self.cause}" + (f" {self.hint}" if self.hint else "")


def join_verdicts(validities: Iterable[Validity]) -> str:
    """Their sentences in one, where what is the same for several tables is said once."""
    alike: dict[str, list[str]] = {}
    for each in validities:
        alike.setdefault(f"{each.verdict.value}: {each.cause} {each.hint}".rstrip(), []).append(str(each.table))
    return " | ".join(f"{', '.join(tables)}: {what}" for what, tables in alike.items())
