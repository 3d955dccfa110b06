"""Capture instances, the snapshot of a source, and the verdict on reading a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from floodmark.core.lsn import LsnAbsence
from floodmark.core.position import Position
from floodmark.core.schema import SourceTable, TableName
from floodmark.core.source.database import DatabaseIdentity
from floodmark.core.source.feed import InstanceIdentity, MemberMark
from floodmark.core.source.words import CDC_WORDS, SourceWords


@dataclass(frozen=True, slots=True)
class CaptureInstance:
    """The feed of a table: a capture instance as ``sys.sp_cdc_help_change_data_capture`` shows it, with its captured
    columns, or what another kind of source has instead."""

    identity: InstanceIdentity
    table: SourceTable
    start_lsn: Position
    supports_net_changes: bool
    has_command_id: bool
    delivers_net: bool = False
    """Each read returns one change per key, by the primary key of the table. A delete has the key alone."""
    has_members: bool = False
    """Whether the feed has members, each with a mark of its own."""
    member_column: str = ""
    """The first column of the key, which names the member that a row is of; "" where rows are of no single member."""


@dataclass(frozen=True, slots=True)
class FeedFault:
    """Why a table's feed cannot be read on from its marks, as its kind of source found out itself."""

    verdict: Verdict
    cause: str
    hint: str = ""
    """It continues a hint that says to reload; "" for none."""


@dataclass(frozen=True, slots=True)
class WiderInstance:
    """An older capture instance of a table, which captures columns that the chosen one does not."""

    name: str
    columns: tuple[str, ...]
    """The columns that only this one captures."""

    def describe(self, instance: str) -> str:
        """Return the sentence about the chosen instance."""
        return (
            f"capture instance {instance}, which is read, lacks columns that the older {self.name} has: "
            f"{', '.join(self.columns)}."
        )

    def advise(self, instance: str) -> str:
        """Return how the operator decides between the two."""
        return (
            f"To read them, set capture_instance: {self.name} for the table in pipelines.yaml, and reload the table if "
            f"it has been loaded. If they are not needed, set capture_instance: {instance}."
        )


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One table in a ``SourceSnapshot``."""

    table: TableName
    exists: bool
    instance: CaptureInstance | None
    """None: no instance, no such table or no right (see the flags)."""
    min_lsn: Position | LsnAbsence
    """``sys.fn_cdc_get_min_lsn`` of the instance."""
    permitted: bool = True
    last_change_lsn: Position | LsnAbsence | None = None
    """The highest ``__$start_lsn`` in the change table; ``LsnAbsence.NULL`` when that is empty, None when the login may
    not see it. It must be read after max_lsn: a table counts as quiet when its last change is not above the watermark,
    and no change captured in between may be missed."""
    changes_after: Position | None = None
    """last_change_lsn is known of the changes after this position alone; None: of all."""
    restarts_at: Position | None = None
    """Where a feed begins that began again without a change since it was made: there ``identity.store_id`` alone
    distinguishes the two. None for a feed whose identity always does."""
    max_column_id: int = 0
    """The table's highest column_id; ids are never reused, so that it shows an added column."""
    min_lsn_at: datetime | None = None
    """The commit time of min_lsn, server local time."""
    searched_for: str | None = None
    """The name of the instance that was searched for; None for any."""
    others: tuple[str, ...] = ()
    """The instances that the table has instead, where it has none of that name."""
    wider: WiderInstance | None = None
    """The instance with columns that ``instance`` lacks, where it is older and the login may read it."""
    server_name: TableName | None = None
    """The name as the source spells it; None where there is no such table."""
    masked: tuple[str, ...] = ()
    """The columns that the login reads through a mask (dynamic data masking)."""
    filters: tuple[str, ...] = ()
    """The enabled security policies that filter its rows, as far as the login may see them."""
    ends: tuple[MemberMark, ...] = ()
    """Where the next window ends in each member; none for a feed that is read as far as it goes."""
    rows_at: bytes | None = None
    """The position of the rows of the table itself, where changes have other positions than windows; None: that of the
    window's end."""
    fault: FeedFault | None = None
    """Why the changes after the marks cannot be read; None where they can, or where no marks were given."""
    plan_fault: FeedFault | None = None
    """Why the table can be neither read nor loaded, as its kind of source found out itself."""
    load_fault: FeedFault | None = None
    """Why the table cannot be loaded as a whole, as its kind of source found out itself."""


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """The state of the source as one round trip returned it. Times are server local time."""

    database: str
    cdc_enabled: bool
    """Whether the database records changes for this kind of source."""
    max_lsn: Position | LsnAbsence
    max_lsn_at: datetime | None
    """The commit time of max_lsn."""
    taken_at: datetime
    """The time at which the server answered."""
    seconds_behind: float | None
    """The age of the newest lsn_time_mapping entry; a lower bound, where the server's clock was set since. None: the
    login may not see it."""
    capture_running: bool | None
    """Whether the capture job runs; None when that is unknown, or when the job has a schedule of its own and is idle
    between two scans."""
    tables: tuple[TableSnapshot, ...]
    entries: Mapping[Position, datetime | None] = field(default_factory=dict)
    """For each position that was asked for, the commit time that the log has for exactly that LSN, None where it has
    none. They must be read before the low ends (see ``core.source.history``)."""
    has_agent: bool = True
    """Whether there is a job that can be stopped at all."""
    clock_ahead_seconds: float = 0.0
    """By how much the server's clock was set forward in the last two hours."""
    clock_back_seconds: float = 0.0
    """By how much the server's clock was set back in the last two hours."""
    is_replica: bool = False
    """The source is a read-only replica: what its server reports about jobs is not about those of the primary."""

    identity: DatabaseIdentity | None = None
    """Which database answered; None where the source does not say."""
    is_synchronous: bool = False
    """A transaction records its changes itself: there is no capture job that may lag or stop."""
    words: SourceWords = field(default=CDC_WORDS, compare=False)

    @property
    def latest_commit_at(self) -> datetime | None:
        """Return a time that no commit until now is later than; None where max_lsn itself shows it.

        Where the clock was set back, earlier commits may have times in the future.
        """
        if self.is_synchronous:
            return None
        return self.taken_at + timedelta(seconds=self.clock_back_seconds)


class Verdict(Enum):
    """The answer to whether the next window of a table may be read, and if not, why. Only READY moves rows."""

    READY = "ready"
    """The source has changes after the watermark, and the next run reads them."""
    CAUGHT_UP = "caught_up"
    """The source has nothing after the watermark."""
    NOT_STARTED = "not_started"
    """No watermark yet: the next run loads the whole table."""
    EXPIRED = "expired"
    """The source has removed changes that no run has read."""
    AHEAD_OF_SOURCE = "ahead_of_source"
    """The source no longer has what was read: it was restored, or failed over to a copy that was behind."""
    TARGET_LOST = "target_lost"
    """The target is not the table that the watermark belongs to: it was dropped, exchanged or emptied, one of its
    columns is gone, or it or the ledger was restored without the other. No window is merged into it."""
    NOT_CAPTURED_YET = "not_captured_yet"
    """The capture job has not reached the enabling of the table."""
    INSTANCE_MISSING = "instance_missing"
    """The changes of the table are not recorded, or the table does not exist."""
    INSTANCE_REPLACED = "instance_replaced"
    """The changes are recorded in another place than before; neither has those in between."""
    OTHER_DATABASE = "other_database"
    """The connection leads to another database than the one that the watermark is of. Nothing is read, and nothing is
    repaired."""
    REPLICA_BEHIND = "replica_behind"
    """A readable replica answered that does not have what was read before. Nothing is concluded from it."""
    NO_PERMISSION = "no_permission"
    """The login may not read the table or its changes."""
    CAPTURE_STOPPED = "capture_stopped"
    """The capture job does not run, and all that it captured of the table has been read. Runs fail, also for tables
    with captured changes left."""
    CAPTURE_LAGGING = "capture_lagging"
    """The capture job runs and captures nothing new. The run ends as skipped."""
    DAMAGED = "damaged"
    """The file that has the rows is cut off, or its parts do not fit."""
    NOT_PLANNABLE = "not_plannable"
    """The configuration of the table and its capture do not fit, such as no key, a type that cannot be carried, or a
    target with another key."""
    REFUSED = "refused"
    """The last load, or a check after its merge, refused the rows of the table. After a refused load nothing of the
    table was merged; after a failed check the target has the rows, and the watermark stays."""
    HELD = "held"
    """The schema of the table has drifted, and its policy is to wait until the operator ends the hold."""
    REPAIRING = "repairing"
    """A window of its own loads the table, again or for the first time, in parallel to the windows of the others. Its
    old rows stay readable."""


@dataclass(frozen=True, slots=True)
class Validity:
    """A verdict with its cause, the positions behind it, and what to do. ``str()`` is the sentence for a log."""

    table: TableName
    verdict: Verdict
    cause: str
    hint: str = ""
    watermark: Position | None = None
    min_lsn: Position | None = None
    max_lsn: Position | None = None

    def __str__(self) -> str:
        return f"{self.table}: {self.verdict.value}: {self.cause}" + (f" {self.hint}" if self.hint else "")


def join_verdicts(validities: Iterable[Validity]) -> str:
    """Return all sentences as one, where the same sentence about several tables appears once."""
    alike: dict[str, list[str]] = {}
    for each in validities:
        alike.setdefault(f"{each.verdict.value}: {each.cause} {each.hint}".rstrip(), []).append(str(each.table))
    return " | ".join(f"{', '.join(tables)}: {what}" for what, tables in alike.items())
