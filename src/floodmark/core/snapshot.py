"""The snapshot of a source: its database, its feeds, their histories and copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from floodmark.core.capture import literal
from floodmark.core.position import NoPosition, Position
from floodmark.core.schema import MappedColumn, SourceColumn, SourceTable, TableName

# --------------------------------------------------------------------------------------------------------------------
# ``Feed``: the feed that the changes of a table are read from, and its identity.


@dataclass(frozen=True, slots=True)
class FeedIdentity:
    """The identity of a feed, such as a capture instance, which no successor of the same name shares.

    ``start`` is not part of it, because cleanup raises it.
    """

    name: str
    object_id: int
    created_at: datetime
    """The server's local time."""
    store_id: int = field(default=0, compare=False)
    """The number of what holds the changes, where a feed that begins again may keep all of the above; 0: not known."""

    def is_successor(self, of: FeedIdentity) -> bool:
        """Return whether the feed has surely taken the place of another."""
        return self != of or (0 not in (self.store_id, of.store_id) and self.store_id != of.store_id)


@dataclass(frozen=True, slots=True)
class MemberMark:
    """The mark of a member in the ledger, or the mark at which a window ends in it."""

    member: str
    mark: str | None
    """None: no window with its rows has been published, or it is to be read as a whole again."""


# --------------------------------------------------------------------------------------------------------------------
# Which database a source is, whatever address leads to it.


@dataclass(frozen=True, slots=True)
class DatabaseIdentity:
    """The identity of a database (docs/reference/sqlserver_cdc.md, "Identity of a database")."""

    server: str
    """The name of the server. Replicas of one database have different ones."""
    database: str
    guid: str | None
    """It survives renames, restores and failovers, so that a restored copy has it too; None where it is not shown."""
    group_id: str | None = None
    """The identifier within an availability group: that of all replicas, and of no other copy. None outside of one."""

    def __str__(self) -> str:
        return f"{self.database} on {self.server} ({self.guid or 'without a GUID'})"


def explain_other_database(known: DatabaseIdentity, found: DatabaseIdentity) -> str | None:
    """Return a sentence on why ``found`` is not certainly the database ``known``; None where it is.

    A restored copy has the same GUID, and may have the same name. Only the server distinguishes it from the original.
    Between the replicas of an availability group the server changes without anyone's doing.
    """
    reason = _differs(known, found)
    return f"the connection leads to {found}, and the watermark is that of {known}: {reason}." if reason else None


def _differs(known: DatabaseIdentity, found: DatabaseIdentity) -> str | None:
    if None not in (known.guid, found.guid) and known.guid != found.guid:
        return "another database"
    if known.database.casefold() != found.database.casefold():
        return "the same one renamed, or a copy"
    is_same_group = known.group_id is not None and known.group_id == found.group_id
    if known.server.casefold() != found.server.casefold() and not is_same_group:
        return "the same one moved to another server, or a copy"
    return None


# --------------------------------------------------------------------------------------------------------------------
# The sentences of verdicts that depend on the kind of a source. The rules do not know kinds (``verdicts``).


@dataclass(frozen=True, slots=True)
class Sentences:
    """The cause and the hint of a verdict."""

    cause: str
    hint: str = ""


class SourceWords:
    """The sentences about change data capture. Another kind of source overrides them all."""

    def describe_capture(self, capture_running: bool | None) -> str:
        """Return what a log says about how changes are recorded."""
        running = {True: "runs", False: "does not run", None: "cannot be seen"}[capture_running]
        return f"the capture job {running}"

    def not_enabled(self, database: str) -> Sentences:
        """Return the sentences about a database that records no changes."""
        return Sentences(
            f"change data capture is not enabled in database {database}.",
            "Run sys.sp_cdc_enable_db there, then sys.sp_cdc_enable_table for the table.",
        )

    def no_permission(self) -> Sentences:
        """Return the sentences about a table whose changes the login may not read."""
        return Sentences(
            "the login may not read the table's capture instance.",
            "Grant the login SELECT on the table and on its change table, and the gating role if there is one.",
        )

    def no_feed(self, wanted: str | None, others: tuple[str, ...], read: FeedIdentity | None) -> Sentences:
        """Return the sentences about a table whose changes are not recorded, or not where they were read before.

        wanted: the name of the feed that was searched for. others: the feeds that the table has. The name matters: a
        table that is enabled without one gets an instance that no pipeline reads.
        """
        name = wanted or (read.name if read else None)
        found = f"the table has {' and '.join(others)}, but not the" if others else "the table has no"
        was = f" Capture instance {read.name} was read before." if read else ""
        named = f" with @capture_instance = {literal(name)}" if name else ""
        instead = f", or set capture_instance: {others[0]} in pipelines.yaml" if others else ""
        return Sentences(
            f"{found} capture instance{f' {name}' if name else ''} that can be read.{was}",
            f"Run sys.sp_cdc_enable_table for it{named}{instead}."
            + (" Changes since the watermark are only in the table itself." if was else ""),
        )

    def describe_feed(self, identity: FeedIdentity) -> str:
        """Return what the changes of a table are read from."""
        return f"capture instance {_describe(identity)}"

    def replaced(self, found: FeedIdentity, known: FeedIdentity) -> str:
        """Return why the changes between two feeds of a table are lost."""
        return (
            f"{self.describe_feed(found)} is not {_describe(known)}, which was read before. Changes between "
            "the two instances are in neither."
        )

    def unproven(self, watermark: Position) -> Sentences:
        """Return the sentences about a table that is read as a whole, as its feed may have begun again."""
        return Sentences(f"the feed may have begun again at {watermark}: the table is read as a whole.")

    def expired(self, watermark: Position, low_end: str) -> Sentences:
        """Return the sentences about changes that were cleaned up. The hint continues one that says to reload."""
        return Sentences(
            f"changes after the watermark {watermark} have been cleaned up: the low end is {low_end}.",
            "raise the retention (sys.sp_cdc_change_job) or run more often.",
        )


CDC_WORDS = SourceWords()


def _describe(identity: FeedIdentity) -> str:
    return f"{identity.name} (object {identity.object_id}, made {identity.created_at:%Y-%m-%d %H:%M:%S})"


# --------------------------------------------------------------------------------------------------------------------
# Feeds, the snapshot of a source, and the verdict on reading a table.


@dataclass(frozen=True, slots=True)
class Feed:
    """The feed of a table: a capture instance as ``sys.sp_cdc_help_change_data_capture`` shows it, with its captured
    columns, or what another kind of source has instead."""

    identity: FeedIdentity
    table: SourceTable
    start: Position
    supports_net_changes: bool
    has_command_id: bool
    delivers_net: bool = False
    """Each read returns one change per key, by the primary key of the table. A delete has the key alone."""
    has_members: bool = False
    """Whether the feed has members, each with a mark of its own."""
    member_column: str = ""
    """The first column of the key, which names the member that a row is of; "" where rows are of no single member."""
    filtering: tuple[SourceColumn, ...] = ()
    """The columns that the filter of the table reads from events, of which ``table`` may lack some in a plan."""

    @property
    def has_events(self) -> bool:
        """Return whether its members are the partitions of a stream."""
        return self.has_members and not self.member_column


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
    feed: Feed | None
    """None: no feed, no such table or no right (see the flags)."""
    oldest: Position | NoPosition
    """The low end of the feed, for CDC ``sys.fn_cdc_get_min_lsn`` of the instance."""
    permitted: bool = True
    last_change: Position | NoPosition | None = None
    """The highest ``__$start_lsn`` in the change table; ``NoPosition.NULL`` when that is empty, None when the login may
    not see it. It must be read after ``newest``: a table is quiet when its last change is not above the watermark,
    and no change captured in between may be missed."""
    changes_after: Position | None = None
    """``last_change`` is known of the changes after this position alone; None: of all."""
    restarts_at: Position | None = None
    """Where a feed begins that began again without a change since it was made: there ``identity.store_id`` alone
    distinguishes the two. None for a feed whose identity always does."""
    max_column_id: int = 0
    """The table's highest column_id; ids are never reused, so that it shows an added column."""
    oldest_at: datetime | None = None
    """The commit time of ``oldest``, server local time."""
    searched_for: str | None = None
    """The name of the instance that was searched for; None for any."""
    others: tuple[str, ...] = ()
    """The instances that the table has instead, where it has none of that name."""
    wider: WiderInstance | None = None
    """The instance with columns that ``feed`` lacks, where it is older and the login may read it."""
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
    newest: Position | NoPosition
    newest_at: datetime | None
    """The commit time of ``newest``."""
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
    none. They must be read before the low ends (see ``core.snapshot``)."""
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
        """Return a time that no commit until now is later than; None where ``newest`` itself shows it.

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
    DEFINITION_CHANGED = "definition_changed"
    """The naming, the filter, a name or a mask of the configuration is not that with which the table was loaded. Or
    the source has a new column for which the configuration says nothing."""
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
    oldest: Position | None = None
    newest: Position | None = None

    def __str__(self) -> str:
        return f"{self.table}: {self.verdict.value}: {self.cause}" + (f" {self.hint}" if self.hint else "")


def join_verdicts(validities: Iterable[Validity]) -> str:
    """Return all sentences as one, where the same sentence about several tables appears once."""
    alike: dict[str, list[str]] = {}
    for each in validities:
        alike.setdefault(f"{each.verdict.value}: {each.cause} {each.hint}".rstrip(), []).append(str(each.table))
    return " | ".join(f"{', '.join(tables)}: {what}" for what, tables in alike.items())


# --------------------------------------------------------------------------------------------------------------------
# The ledger's state of a table.


@dataclass(frozen=True, slots=True)
class TableState:
    """The ledger's state of a table of a pipeline."""

    source: TableName
    watermark: Position | None
    """None: the first load has not been published."""
    identity: FeedIdentity | None
    consistent: bool
    """Whether a window has been merged whose end was committed after the first load's read."""
    watermark_at: datetime | None = None
    """The commit time of the watermark, local time of the source."""
    read_to: Position | None = None
    """The source's newest position when the last load had been read. Its rows may be as new, so that until the table is
    consistent the log must still have that position. Without a watermark: of a first load that was merged, and that
    the checks refused."""
    read_to_at: datetime | None = None
    """The commit time of ``read_to``."""
    database: DatabaseIdentity | None = None
    """The database that the pipeline follows; None where none is recorded."""
    target_fault: str = ""
    """Why the target is not the one that the ledger means; "" where it is, or where it was never loaded."""
    columns: tuple[MappedColumn, ...] = ()
    """The columns that the target has names for; none under ``naming: keep`` without settings of columns."""
    target: TableName | None = None
    """The table in the warehouse; None where it was not asked for."""
    definition: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The settings of its columns with which the table was loaded (``core.definition``)."""

    @property
    def is_loaded(self) -> bool:
        """Return whether the target has rows of a load."""
        return self.watermark is not None or self.read_to is not None

    @property
    def known_columns(self) -> frozenset[str]:
        """Return the columns that the ledger has, by their names at the source, with those that are not read."""
        return frozenset({*(column.source for column in self.columns), *(self.definition if self.columns else ())})


# --------------------------------------------------------------------------------------------------------------------
# The tables of a database, before a configuration names them.


@dataclass(frozen=True, slots=True)
class SurveyedTable:
    """A table that the login may see."""

    name: TableName
    rows: int | None
    """By the server's own count, which may lag behind. None where the login may not see it."""
    key: tuple[str, ...]
    """The columns of the primary key; empty without one."""
    has_cdc: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """A database. has_cdc: whether change data capture is enabled on it."""

    database: str
    has_cdc: bool
    tables: tuple[SurveyedTable, ...]


# --------------------------------------------------------------------------------------------------------------------
# Proof that the source's log is not the one that was read, but that of a restored backup or a stale copy.
#
# A log that only grows, and is cleaned up from below, keeps the time of each of its entries. So a position whose entry
# was found once, with its commit time, is a proof in every later snapshot: the entry exists, with that time. If it does
# not, the log was taken back to before that position and written on, even where its newest LSN is above the position
# again. Below it are now other transactions than those that were read.
#
# These are no proof, and without a proof nothing is reported (ADR 32):
#
# * An entry that is missing at or below the low end: cleanup deletes entries below the lowest low end of all instances.
#   So a missing entry counts only above the table's own low end, which is not lower than that, and which must have been
#   read after the entry: cleanup raises the low ends first.
# * A missing entry of a position of which no time is known: there may never have been one.
# * Missing times where the login may see none at all: then that of the newest LSN is missing too.
# * Times that differ by no more than ticks of ``datetime``, which drivers round differently. A transaction that took
#   the position of another one after a restore is younger by more than that.
#
# A clock that is set back, summer time and moves to other zones do not change existing entries: a time is only compared
# with an earlier time of the same entry.


_ROUNDING = timedelta(milliseconds=10)
"""A datetime counts in 1/300 s."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of ``cdc.lsn_time_mapping``."""

    position: Position
    committed_at: datetime | None
    """The commit time, local time of the source; None where it is not known."""


def same_time(first: datetime, second: datetime) -> bool:
    """Return whether two values of ``datetime`` are the same moment at the source, however drivers rounded them."""
    return abs(first - second) < _ROUNDING


def explain_other_copy(needed: LogEntry, newest: Position | NoPosition, found_at: datetime | None) -> str | None:
    """Return a sentence on why rows up to ``needed`` cannot be read where the source answered this; None if they can.

    newest: the newest position there. found_at: the commit time that the log has there for exactly ``needed.position``.
    """
    end = needed.position
    if not isinstance(newest, Position) or newest < end:
        shown = newest if isinstance(newest, Position) else "none"
        return f"this copy of the database is behind: its newest {end.noun} is {shown}, and the window ends at {end}."
    if needed.committed_at is None or (found_at is not None and same_time(found_at, needed.committed_at)):
        return None
    found = f"an entry of {found_at}" if found_at else "no entry"
    return (
        f"this copy of the database has another log: at {end}, where the window ends, it has {found}, and not "
        f"that of {needed.committed_at}."
    )


def explain_rewind(
    position: Position, committed_at: datetime | None, low_end: Position, snapshot: SourceSnapshot
) -> str | None:
    """Return a sentence that proves that the log was taken back and written on, None without a proof.

    committed_at: the commit time that the source gave for ``position`` when it was its newest LSN. low_end: of the
    table's instance.
    """
    if committed_at is None or position not in snapshot.entries:
        return None
    found_at = snapshot.entries[position]
    if found_at is None:
        if position <= low_end or snapshot.newest_at is None:
            return None
        now = f"now has nothing there, and reaches from {low_end} to {snapshot.newest} ({snapshot.newest_at})"
    elif same_time(found_at, committed_at):
        return None
    else:
        now = f"now has another one there, committed at {found_at}"
    grown = isinstance(snapshot.newest, Position) and snapshot.newest >= position
    state = "an older state and has written on since" if grown else "an older state"
    return (
        f"the source has been restored, or failed over, to {state}: at {position}, which was examined, its log had a "
        f"transaction committed at {committed_at}, and {now}."
    )


# --------------------------------------------------------------------------------------------------------------------
# Copies of a database: what a snapshot of a readable replica that lags must not be taken for.
#
# A replica applies the primary's log in order, seconds later, or hours where it has much to catch up with. An address
# may lead to any of several replicas, so a snapshot may be older than the one before. That is no restore: the same
# position comes to this replica, or another replica answers the next time.


REPLICA_LIMIT_SECONDS = 86400.0
"""The age of an entry above which a replica that lacks it no longer counts as late, but as restored. It is longer than
any difference between the time zones of two servers."""


def explain_behind(needed: LogEntry, snapshot: SourceSnapshot) -> str | None:
    """Return a sentence where a replica answered that does not have ``needed`` yet; None for any other snapshot."""
    if not snapshot.is_replica or (isinstance(snapshot.newest, Position) and snapshot.newest >= needed.position):
        return None
    newest = snapshot.newest if isinstance(snapshot.newest, Position) else "none"
    noun = needed.position.noun
    cause = f"a readable replica answered whose newest {noun} is {newest}, and {needed.position} was read before"
    if needed.committed_at is None:
        return f"{cause}."
    age = (snapshot.taken_at - needed.committed_at).total_seconds()
    return None if age > REPLICA_LIMIT_SECONDS else f"{cause}, {max(age, 0.0):.0f} s after its commit."
