"""The plan of a window: its tables with their intervals, columns, lanes, members and chunks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from floodmark.core.columns import maps_columns, retype_columns
from floodmark.core.definition import define
from floodmark.core.errors import command_line
from floodmark.core.naming import versions_name, with_names
from floodmark.core.position import Interval, Position, parse_position
from floodmark.core.schema import (
    LOAD_COLUMN,
    LOG_KEY,
    POSITION_COLUMN,
    SEQUENCE_COLUMN,
    STAGING_SCHEMA,
    MappedColumn,
    SourceColumn,
    SourceTable,
    TableName,
)
from floodmark.core.settings import Rule, Style, TableSettings, TemporalPolicy
from floodmark.core.snapshot import Feed, LogEntry, MemberMark, Verdict
from floodmark.core.types import WarehouseType, warehouse_type

# --------------------------------------------------------------------------------------------------------------------
# Lanes: windows of one pipeline run in parallel on several lanes, with at most one unfinished window on each.
#
# The main lane plans from the watermarks and advances them. A load lane reloads one table while the main lane goes on
# without it. A replay lane merges an interval again that was read before. A release lane merges rows from quarantine,
# in one transaction, so that no window on it is ever unfinished. So is the window on an import lane, which records that
# another tool has loaded a table.


MAIN_LANE = ""
_LOAD = "load "
_REPLAY = "replay "
_RELEASE = "release "
_IMPORT = "import "


def load_lane(table: TableName) -> str:
    """Return the lane on which a source table is reloaded."""
    return f"{_LOAD}{table}"


def is_load_lane(lane: str) -> bool:
    """Return whether windows of the lane reload a table."""
    return lane.startswith(_LOAD)


def replay_lane(interval: Interval, tables: Sequence[TableName] = ()) -> str:
    """Return the lane on which an interval is merged again. tables: only of these; none for all of a pipeline."""
    only = f" {json.dumps([str(table) for table in tables])}" if tables else ""
    return f"{_REPLAY}{interval.after}-{interval.to}{only}"


def is_replay_lane(lane: str) -> bool:
    """Return whether windows of the lane merge an interval again."""
    return lane.startswith(_REPLAY)


def release_lane(table: TableName) -> str:
    """Return the lane on which rows of a source table are released from quarantine."""
    return f"{_RELEASE}{table}"


def import_lane(table: TableName) -> str:
    """Return the lane on which a target that another tool has loaded is adopted."""
    return f"{_IMPORT}{table}"


def finishing_command(pipeline: str, lane: str) -> str:
    """Return the command that continues the unfinished window of a lane."""
    if is_load_lane(lane):
        return command_line("reload", pipeline, lane.removeprefix(_LOAD))
    if is_replay_lane(lane):
        interval, _, only = lane.removeprefix(_REPLAY).partition(" ")
        after, to = map(parse_position, interval.split("-"))
        tables = [word for table in (json.loads(only) if only else ()) for word in ("--table", table)]
        # Both bounds of the command are included; another interval would be another lane.
        return command_line("replay", pipeline, "--from-lsn", after.next(), "--to-lsn", to, *tables)
    return command_line("run", pipeline)


# --------------------------------------------------------------------------------------------------------------------
# The plan of one run: one window ``(after, to]`` per table with one ``to`` for all, or a first load up to ``to``.


class LoadKind(Enum):
    """How a table's rows are read in this window."""

    FIRST_LOAD = "first_load"
    CHANGES = "changes"


class WindowState(Enum):
    """A window's way through the ledger. Each step is written in the transaction that does the work it names."""

    PLANNED = "planned"
    MERGED = "merged"
    CHECKED = "checked"
    ADVANCED = "advanced"
    """The watermarks stand at ``to``: the window is finished."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The part of one table in the window."""

    settings: TableSettings
    """The settings in effect. ``net`` says where this window's net changes are computed."""
    kind: LoadKind
    feed: Feed
    """What the changes are read from. ``feed.table.key`` is the key to merge by, the server's or a declared one; a log
    may have none, and a snapshot of a table has none."""
    interval: Interval | None
    """None for a first load, whose rows are stamped with ``WindowPlan.to``."""
    watermark: Position | None
    """The expected one, for compare-and-set; None before the first load."""
    quiet: bool = False
    """Whether the change table held nothing in the interval, so that nothing needs to be read."""
    is_reload: bool = False
    """A first load over a target that has rows: those that the source no longer has are swept after the merge."""
    keeps_unread: bool = False
    """The source may hide rows from the login that it still has: a reload deletes nothing."""
    where: str = ""
    """A condition in T-SQL: only rows for which it is true are loaded, nothing is swept, no watermark moves."""
    reloads_members: bool = False
    """A member whose changes cannot be read after its mark is read as a whole, and not left out."""
    ends: tuple[MemberMark, ...] = ()
    """Where the window ends in each member; none for a feed whose members are read as far as they go."""
    rows_at: bytes | None = None
    """The position of the rows of a first load, where it is not the end of the window."""
    columns: tuple[MappedColumn, ...] = ()
    """The columns with their names in the target, also those that the source no longer has; none: the source's."""
    marks: tuple[MemberMark, ...] = ()
    """The marks of a feed's members. The ledger adds them when a load begins; they are no part of the stored plan."""
    renewed: tuple[str, ...] = ()
    """Columns with other masks, or none, in the target: it must have no row. ``where``: the filter of a fleet."""
    filled: tuple[str, ...] = ()
    """The columns that the filter reads, which may be left out, and that are never NULL in a row."""
    has_ended: bool = False
    """The target of this plan is the table of the ended versions of a history (``ended_versions``)."""

    @property
    def source(self) -> TableName:
        """Return the table at the source."""
        return self.settings.source

    @property
    def target(self) -> TableName:
        """Return the table in the warehouse."""
        return self.settings.target

    @property
    def target_names(self) -> dict[str, str]:
        """Return the name in the target of each column with a name of its own there, by its name at the source."""
        return {column.source: column.target for column in self.columns}

    @property
    def renames_columns(self) -> bool:
        """Return whether the merge gives columns of the target other names."""
        return any(column.was for column in self.columns)

    @property
    def in_target(self) -> SourceTable:
        """Return the source table with the names and the types that the target has for its columns.

        Staging, and all that comes after it, knows no others. Only what reads the source, and drift, knows those of
        ``feed.table``.
        """
        return with_names(retype_columns(self.settings, self.feed.table), self.target_names)

    @property
    def definition(self) -> dict[str, Mapping[str, str]]:
        """Return what the ledger records of the settings of the columns (``core.definition``)."""
        return define(self.settings, self.target_names.keys())

    @property
    def recorded_names(self) -> dict[str, str] | None:
        """Return the names of the columns for the ledger; None where it records none."""
        return self.target_names if maps_columns(self.settings) else None

    @property
    def is_log(self) -> bool:
        """Return whether the target is a log, which keeps every change."""
        return self.settings.style is Style.LOG

    @property
    def has_before_images(self) -> bool:
        """Return whether the row before each update comes too. Without a key, only it shows which row was updated."""
        return self.is_log and (self.settings.before_images or not self.feed.table.key)

    @property
    def reads_no_rows(self) -> bool:
        """Return whether a load of the whole table adds no row: the log only has the changes after it."""
        return self.is_log and not self.settings.snapshot

    @property
    def is_history(self) -> bool:
        """Return whether the target has the newest versions of rows, and another table those before them."""
        return self.settings.style is Style.HISTORY

    @property
    def is_snapshot(self) -> bool:
        """Return whether the target has the rows of the newest read of the whole table, and no others."""
        return self.settings.style is Style.SNAPSHOT

    @property
    def sweeps(self) -> bool:
        """Return whether rows of the target that a load of the whole table has not read are deleted after the merge."""
        return self.is_reload and self.settings.style is Style.CURRENT

    @property
    def keeps_changes(self) -> bool:
        """Return whether all changes come to the target."""
        return self.is_log or self.is_history

    @property
    def has_commit_times(self) -> bool:
        """Return whether the rows come to the target with the times of their commits."""
        return self.keeps_changes or (self.settings.commit_times and self.settings.style is Style.CURRENT)

    @property
    def target_key(self) -> tuple[str, ...]:
        """Return the primary key of the target: that of the source, or the place of a change or a row in its read."""
        return self.row_key if self.is_log or self.is_snapshot or self.has_ended else self.in_target.key

    @property
    def row_key(self) -> tuple[str, ...]:
        """Return the columns that identify a staged row: behind the key, the commit for a history.

        Net changes of the source have no place in their commit but their key.
        """
        if self.is_log:
            return (*LOG_KEY, *(self.in_target.key if self.feed.delivers_net else ()))
        if self.is_snapshot:
            return (SEQUENCE_COLUMN,)
        return (*self.in_target.key, *((LOAD_COLUMN, POSITION_COLUMN) if self.is_history else ()))

    @property
    def ended_versions(self) -> TablePlan:
        """Return the plan as if its target were the table of ended versions, which has the same columns and more."""
        settings = replace(self.settings, target=versions_name(self.target))
        return replace(self, settings=settings, has_ended=True)

    def with_rules(self, rules: tuple[Rule, ...]) -> TablePlan:
        """Return the plan with other rules."""
        return replace(self, settings=replace(self.settings, rules=rules))


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """One window of one pipeline.

    A load may read a newer state than was planned, and then moves the end there (``extended_to``).
    """

    window_id: int
    """Given by the ledger; it grows."""
    pipeline: str
    to: Position
    tables: tuple[TablePlan, ...]
    attempt: int = 0
    """How many loads of the window have begun. A load works on the plan that ``PostgresLedger.begin_load`` returned."""
    lane: str = ""
    """See ``core.plan``; "" is the main one."""
    to_at: datetime | None = None
    """The commit time of ``to``, local time of the source; None where it was not asked for."""

    @property
    def end(self) -> LogEntry:
        """Return the entry of the log at which the window ends. Every copy of the source that is read must have it."""
        return LogEntry(self.to, self.to_at)

    def extended_to(self, end: LogEntry) -> WindowPlan:
        """Return the plan with a later end, up to which no table is known to be quiet.

        Raises ValueError for an earlier one, or for a window with a first load.
        """
        if end.position < self.to or any(table.interval is None for table in self.tables):
            raise ValueError(f"window {self.window_id} cannot end at {end.position}")
        tables = tuple(
            replace(table, interval=Interval(table.interval.after, end.position), quiet=False)
            for table in self.tables
            if table.interval is not None
        )
        return replace(self, to=end.position, to_at=end.committed_at, tables=tables)

    def rows_at(self, table: TablePlan) -> bytes:
        """Return the position of the rows of a load of the whole table."""
        return table.rows_at or self.to.value

    def moves_watermark(self, table: TablePlan) -> bool:
        """Return whether the table's watermark is ``to`` when the window has been published."""
        return not is_replay_lane(self.lane) and not table.where


@dataclass(frozen=True, slots=True)
class TableCounts:
    """The rows that one table's load moved: staged = inserted + updated + deleted + quarantined + unchanged."""

    read_rows: int = 0
    """Change rows that came from the source; in a first load, rows of the table."""
    staged_rows: int = 0
    """Rows after net changes, without those that the merge dropped, such as deletes of keys that no target has."""
    inserted_rows: int = 0
    """Staged rows whose keys came to life in the target."""
    updated_rows: int = 0
    """Staged rows that replaced living rows of the target."""
    deleted_rows: int = 0
    """Staged rows that ended living rows of the target."""
    unchanged_rows: int = 0
    """Staged rows that changed nothing: the target had the row at the same or a higher position, or a deleted key was
    not there."""
    quarantined_rows: int = 0
    """Staged rows that a rule set aside."""
    warned_rows: int = 0
    """Rows that break a rule which only warns; they are merged all the same."""
    swept_rows: int = 0
    """Rows of the target that a reload did not find at the source any more."""


# --------------------------------------------------------------------------------------------------------------------
# The stored columns of a source table as they travel to the warehouse.


_WITHOUT_OLD_VALUES = frozenset({"text", "ntext", "image"})


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """A stored column on its way."""

    name: str
    type: WarehouseType
    ordinal: int
    """Its place in the update mask."""
    is_lob: bool
    """Whether its values may be of any length."""
    is_optional: bool
    """Whether a change row may leave its value out."""
    is_nullable: bool
    """Whether NULL may be the last value of a deleted row. Servers have written it in deletes for bit NOT NULL."""
    keeps_value_on_delete: bool
    """Whether NULL in a delete row is the last value. With text, ntext and image it is not, nor in partial changes."""


def value_columns(table: SourceTable, temporal: TemporalPolicy) -> tuple[ValueColumn, ...]:
    """Return every stored column, in order. Raises ConfigError for a type that Floodmark does not support."""
    return tuple(_value_column(table, column, temporal) for column in table.stored_columns)


def _value_column(table: SourceTable, column: SourceColumn, temporal: TemporalPolicy) -> ValueColumn:
    return ValueColumn(
        name=column.name,
        type=warehouse_type(table, column, temporal),
        ordinal=column.ordinal,
        is_lob=column.is_lob,
        is_optional=table.may_leave_out(column),
        is_nullable=column.nullable,
        keeps_value_on_delete=column.nullable and column.type_name not in _WITHOUT_OLD_VALUES and not table.is_partial,
    )


# --------------------------------------------------------------------------------------------------------------------
# Members: the parts of a feed that have a position each, such as devices of a fleet or partitions of a stream.
#
# The table has one watermark, which says when its members were examined last. Each member has a *mark*, a text that
# only its kind of source reads: how far it was read, and the proof of it. Marks move with the watermark.


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """A message of a member that could not be read as a change."""

    place: str
    """Where it is in its member."""
    reason: str
    """It contains no value of a row."""
    body: bytes | None
    """As it was read; None where values are hidden, or where the load has kept enough of other messages."""
    topic: str = ""
    """The topic that has the member."""


@dataclass(frozen=True, slots=True)
class QuarantinedMessages:
    """The messages of a pipeline that are in quarantine."""

    reasons: tuple[tuple[str, int], ...]
    """Each reason with the number of its messages, the greatest first."""

    @property
    def count(self) -> int:
        return sum(count for _, count in self.reasons)


@dataclass(frozen=True, slots=True)
class MemberRead:
    """How one member of a table was examined by a load."""

    member: str
    before: str | None
    """Its mark before the load, for compare-and-set."""
    after: str | None = None
    """The mark to keep when the rows are published; None: the mark stays as it is."""
    is_whole: bool = False
    """Whether all of its rows were read, and not only changes: rows of the target that were not found are gone."""
    verdict: Verdict | None = None
    """Why it could not be read; None where it was, or where there is nothing to read."""
    cause: str = ""
    hint: str = ""
    quarantined: tuple[QuarantinedMessage, ...] = ()
    """The messages that were set aside."""


def member_name(table: TableName, member: str) -> TableName:
    """Return the name under which a member of a table has verdicts and alerts."""
    return TableName(f"{table.schema}.{table.name}", member)


# --------------------------------------------------------------------------------------------------------------------
# The chunks of a first load: ranges of the key with bounds that the server chose, and how many have been read.
#
# Bounds go back to the server as the values they came as and are compared by the server alone: its order of a
# uniqueidentifier, or of a text, is not Python's.


Bound = tuple[int | str | bytes | Decimal, ...]
"""A value for each column of the key."""


@dataclass(frozen=True, slots=True)
class LoadChunk:
    """The keys after ``after`` up to and including ``to``; None: no bound on that side."""

    number: int
    """0-based, in key order."""
    after: Bound | None
    to: Bound | None


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk in the ledger."""

    chunk: LoadChunk
    staged_rows: int | None = None
    """None: not staged yet."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The progress of a table's chunks."""

    chunks: int
    staged_chunks: int
    rows: int
    """The rows in staging."""

    @property
    def percent(self) -> int:
        """Return the percentage of chunks that are staged, 100 when all are.

        All chunks have the same number of rows, except the last one.
        """
        return 100 * self.staged_chunks // self.chunks if self.chunks else 0

    @property
    def rows_left(self) -> float | None:
        """Return about how many rows are not staged; None before the first chunk."""
        return self.rows / self.staged_chunks * (self.chunks - self.staged_chunks) if self.staged_chunks else None

    def __str__(self) -> str:
        return f"{self.percent} %, {self.rows:,} rows"


def plan_chunks(bounds: Sequence[Bound]) -> tuple[LoadChunk, ...]:
    """Return the chunks of the whole table, cut at ``bounds`` (in the server's order). The first and last are open."""
    ends: list[Bound | None] = [None, *bounds, None]
    return tuple(LoadChunk(number, ends[number], ends[number + 1]) for number in range(len(ends) - 1))


def select_lost(stored: Sequence[StoredChunk], found_rows: Mapping[int, int]) -> tuple[int, ...]:
    """Return the numbers of the chunks whose rows in staging are not those that count as staged.

    A crash of the warehouse empties tables that are not logged. A ledger that was restored gives the number of a lost
    window again, whose staging table may still have chunks. found_rows: rows in staging, by number of the chunk.
    """
    staged = {each.chunk.number: each.staged_rows for each in stored if each.staged_rows is not None}
    return tuple(
        number for number in sorted({*staged, *found_rows}) if staged.get(number, 0) != found_rows.get(number, 0)
    )


def progress_of(stored: Sequence[StoredChunk]) -> LoadProgress:
    """Return the progress of the chunks of a table."""
    staged = [each.staged_rows for each in stored if each.staged_rows is not None]
    return LoadProgress(len(stored), len(staged), sum(staged))


def bound_to_json(bound: Bound | None) -> list[Any] | None:
    """Return a form that JSON can hold and ``bound_from_json`` reads back to the same values."""
    return None if bound is None else [_value_to_json(value) for value in bound]


def bound_from_json(document: Sequence[Any] | None) -> Bound | None:
    """Return the bound of a JSON document."""
    return None if document is None else tuple(_value_from_json(value) for value in document)


def chunk_to_json(chunk: LoadChunk) -> dict[str, Any]:
    """Return a form that JSON can hold and ``chunk_from_json`` reads back."""
    return {"number": chunk.number, "after": bound_to_json(chunk.after), "to": bound_to_json(chunk.to)}


def chunk_from_json(document: Mapping[str, Any]) -> LoadChunk:
    """Return the chunk of a JSON document."""
    return LoadChunk(document["number"], bound_from_json(document["after"]), bound_from_json(document["to"]))


def _value_to_json(value: int | str | bytes | Decimal) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    return value


def _value_from_json(value: Any) -> int | str | bytes | Decimal:
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"]) if "bytes" in value else Decimal(value["decimal"])
    found: int | str = value
    return found


# --------------------------------------------------------------------------------------------------------------------
# The names of staging tables, shared by writers, merge and checks.


def staging_table(plan: WindowPlan, index: int) -> TableName:
    """Return the staging table of table ``index`` of the plan.

    Changes have tables of their own in each attempt: a load that was assumed dead cannot write into those of its
    successor. The chunks of a first load outlast the attempts, and are fenced one by one. The name does not depend on
    the other tables of the plan: one may leave it while the others are staged.
    """
    prefix = staging_prefix(plan.window_id)
    table = plan.tables[index]
    own = "load" if table.kind is LoadKind.FIRST_LOAD else plan.attempt
    return TableName(STAGING_SCHEMA, f"{prefix}{own}_{hashlib.sha256(str(table.source).encode()).hexdigest()[:16]}")


def staging_prefix(window_id: int) -> str:
    """Return the prefix of the names of all staging tables of a window."""
    return f"w{window_id}_"


# --------------------------------------------------------------------------------------------------------------------
# The results of a published window.


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of a published window, for logs and notifications."""

    source: TableName
    target: TableName
    kind: LoadKind
    after: Position | None
    """None: a first load."""
    to: Position
    counts: TableCounts

    @property
    def has_rows(self) -> bool:
        """Whether the window brought rows of the table, or loaded all of it."""
        return self.kind is LoadKind.FIRST_LOAD or self.counts.read_rows > 0


@dataclass(frozen=True, slots=True)
class AdvanceResult:
    """The result of advancing a window."""

    window_id: int
    pipeline: str
    to: Position
    tables: tuple[PublishedTable, ...]
    is_replay: bool = False
    """Whether the window was a replay: no watermark moved."""
