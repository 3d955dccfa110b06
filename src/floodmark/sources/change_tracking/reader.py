"""``TrackingReader``: a table of a plan, read by CHANGETABLE or, for a first load, from the table itself.

CHANGETABLE has the newest state of each key that changed after a version, and no older one. So rows are read that are
newer than the window's end. Each has the version of its own change, so that a later window does not undo it; the
watermark moves to the end of the window, and the next window reads them again (docs/reference/change_tracking.md).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from floodmark.core.capture import bracket, bracket_table
from floodmark.core.errors import (
    ConfigError,
    FloodmarkBugError,
    FloodmarkError,
    InstanceReplacedError,
    SourceBehindError,
    WindowExpiredError,
)
from floodmark.core.plan import LoadChunk, LoadKind, TablePlan, WindowPlan, value_columns
from floodmark.core.position import Interval, NoPosition, Position, Version
from floodmark.core.schema import Operation
from floodmark.core.settings import SOURCE_VARIABLE
from floodmark.core.snapshot import LogEntry, explain_other_copy
from floodmark.sources.change_tracking.doctor import SNAPSHOT_ON
from floodmark.sources.change_tracking.source import TRACKING_WORDS, feed_name
from floodmark.sources.sqlserver.clock import COMMITTED_AT, LOCAL_TIME, read_clock, select_utc
from floodmark.sources.sqlserver.driver import SourceSession, SqlServerConnection, connect
from floodmark.sources.sqlserver.rows import SqlServerReader, filter_of, select_expressions
from floodmark.sync.ports import COUNTED_CHANGES, WHOLE_CHANGES, Found, RowShape, WindowReads, found_of, read_tables

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The T-SQL that reads changes by CHANGETABLE: one SELECT per table, with the same text for every window.


POSITION = "__$version"
OPERATION = "__$operation"
MASK = "__$update_mask"
_PASSES = "__$passes"
"""The alias of whether a row passes the filter."""
OWN_COLUMNS = ((POSITION, "binary"), (OPERATION, "int"), (MASK, "binary"))
_COMMIT = "__$commit"
"""The alias of the version of a commit where its time is from."""


def own_columns(plan: TablePlan) -> tuple[tuple[str, str], ...]:
    """Return the columns of a change that this plan reads, with their types; none for a first load."""
    if plan.kind is LoadKind.FIRST_LOAD:
        return ()
    return (*OWN_COLUMNS, *(((COMMITTED_AT, "moment"),) if plan.has_commit_times else ()))


def select_changes(plan: TablePlan, commits: str = "", *, is_cut: bool = False) -> str:
    """Return the SELECT of the changes after a version, with the rows as they are now.

    Parameters: the version, those of ``commits``, and the last version that is read, if any. commits: the SELECT of the
    commits with their times; "" where the login may not see them. A change without one has the time of the read.
    is_cut: no later version is read, although a key may have an earlier one too, which nothing shows any more.

    The key of a deleted row is that of the change, its other columns are NULL, or those of a row that was inserted
    meanwhile; the merge does not use them. A change whose row no longer exists is left out: its delete was committed
    meanwhile, and the next window reads it. No mask: each row has all its values.

    A row that does not pass the filter comes as the delete of its key, with NULL in all other columns: nothing shows
    whether it had passed. The merge leaves out those that the target does not have (``warehouse.gate``).
    """
    table = plan.feed.table
    name, key = bracket_table(table.name), [bracket(each) for each in table.key]
    rows, passes = name, ""
    if plan.settings.where is not None:
        columns = ", ".join(bracket(column.name) for column in table.stored_columns)
        passed = f"CASE WHEN {filter_of(plan)} THEN 1 ELSE 0 END AS [{_PASSES}]"
        rows = f"(SELECT {columns}, {passed} FROM {name})"  # noqa: S608
        passes = f"t.[{_PASSES}] = 1 AND c.SYS_CHANGE_OPERATION <> N'D'"
    same_key = " AND ".join(f"t.{each} = c.{each}" for each in key)
    is_delete, is_gone = "c.SYS_CHANGE_OPERATION = N'D'", f"t.{key[0]} IS NULL"
    values = [
        # The key as the row spells it now: the server may take another spelling for the same key.
        f"CASE WHEN {is_gone} THEN c.{each} ELSE t.{each} END AS {each}"
        if each in key
        else f"CASE WHEN {passes} THEN t.{each} END AS {each}"
        if passes
        else f"t.{each}"
        for each in (bracket(column.name) for column in table.stored_columns)
    ]
    operation = (
        f"CASE c.SYS_CHANGE_OPERATION WHEN N'D' THEN {Operation.DELETE.value}"
        f" WHEN N'I' THEN {Operation.INSERT.value} ELSE {Operation.UPDATE.value} END"
    )
    if passes:
        operation = f"CASE WHEN {passes} THEN {operation} ELSE {Operation.DELETE.value} END"
    # The position of a version (core.version): one more, in the low bytes.
    position = "CAST(0x0000 AS binary(2)) + CAST(c.SYS_CHANGE_VERSION + 1 AS binary(8))"
    own = [f"{position} AS [{POSITION}]", f"{operation} AS [{OPERATION}]", f"CAST(NULL AS varbinary(1)) AS [{MASK}]"]
    joined, is_read = "", f"{is_delete} OR NOT {is_gone}"
    if plan.has_commit_times:
        at = "CAST(SYSUTCDATETIME() AS datetime2(3))"
        own.append(f"{f'COALESCE(m.[{COMMITTED_AT}], {at})' if commits else at} AS [{COMMITTED_AT}]")
        joined = f" LEFT JOIN ({commits}) AS m ON m.[{_COMMIT}] = c.SYS_CHANGE_VERSION" if commits else ""
    if is_cut:
        is_read = f"({is_read}) AND c.SYS_CHANGE_VERSION <= ?"
    columns = ", ".join(
        [*(f"[{column}]" for column, _ in own_columns(plan)), *select_expressions(table, plan.settings.temporal)]
    )
    return (
        f"SELECT {columns} FROM (SELECT {', '.join([*own, *values])}"  # noqa: S608
        f" FROM CHANGETABLE(CHANGES {name}, ?) AS c LEFT JOIN {rows} AS t ON {same_key}{joined}"
        f" WHERE {is_read}) AS r"
    )


def select_commits(*, has_zone: bool, is_one: bool = False) -> str:
    """Return the SELECT of the commits after a version, with their times in UTC; is_one: of the version alone.

    Parameters: those of ``select_utc``, then the version. In the hour that comes twice a time is the one that the
    server takes.
    """
    local = (
        f"SELECT v.commit_ts AS [{_COMMIT}], CAST(v.commit_time AS datetime2(3)) AS [{LOCAL_TIME}]"  # noqa: S608
        f" FROM sys.dm_tran_commit_table AS v WHERE v.commit_ts {'=' if is_one else '>'} ?"
    )
    return select_utc(local, _COMMIT, has_zone=has_zone, is_guessed=True)


def select_sight() -> str:
    """Return the SELECT of whether the login may see the times of commits: 1 if so."""
    return "SELECT HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DATABASE STATE') AS sees_times"


def select_versions(*, with_times: bool) -> str:
    """Return the SELECT of the current version, and of the commit times of it and of another. Parameter: the other."""
    at = "(SELECT commit_time FROM sys.dm_tran_commit_table WHERE commit_ts = {})" if with_times else "NULL"
    return (
        "SELECT v.current_version, "  # noqa: S608
        f"{at.format('v.current_version')} AS current_at, {at.format('v.other_version')} AS other_at"
        " FROM (SELECT CHANGE_TRACKING_CURRENT_VERSION() AS current_version, CAST(? AS bigint) AS other_version) AS v"
    )


def select_tracking() -> str:
    """Return the SELECT of a table's begin_version, oldest valid version and side table. Parameter: object_id."""
    return (
        "SELECT t.begin_version, CHANGE_TRACKING_MIN_VALID_VERSION(t.object_id) AS min_valid_version,"
        " (SELECT MAX(i.object_id) FROM sys.internal_tables AS i"
        " WHERE i.parent_object_id = t.object_id AND i.internal_type = 209) AS side_table_id"
        " FROM sys.change_tracking_tables AS t WHERE t.object_id = ?"
    )


def select_snapshot_state() -> str:
    """Return the SELECT of whether the database allows SNAPSHOT isolation: 1 for ON."""
    return "SELECT CAST(snapshot_isolation_state AS int) AS state FROM sys.databases WHERE database_id = DB_ID()"


# --------------------------------------------------------------------------------------------------------------------
# Versions, and the proof that the database behind a connection has the version at which a window ends.


_HINT = "If it persists, check whether the database was restored or failed over."


def number_of(position: Position) -> int:
    """Return the number of a version. Raises FloodmarkBugError for a position of another kind."""
    if not isinstance(position, Version):
        raise FloodmarkBugError("change tracking", f"{position} is not a version.")
    return position.number


def require_version(session: SourceSession, entry: LogEntry, subject: str) -> LogEntry:
    """Return the current version. Raises SourceBehindError unless the database has a version, with its commit time.

    Without VIEW DATABASE STATE there are no commit times, and none is compared.
    """
    knows_times = entry.committed_at is not None
    text = select_versions(with_times=knows_times)
    [(current, current_at, found_at)] = session.fetch(text, (number_of(entry.position),))
    newest = NoPosition.NULL if current is None else Version.of(current)
    if cause := explain_other_copy(entry, newest, found_at):
        raise SourceBehindError(subject, cause, _HINT)
    return LogEntry(Version.of(current), current_at)


# --------------------------------------------------------------------------------------------------------------------


def open_tracking_reader(plan: TablePlan, end: LogEntry) -> TrackingReader:
    """Return the reader over the connection that the environment names."""
    return TrackingReader(plan, SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE]), end)


@dataclass(frozen=True)
class TrackingReader(SqlServerReader):
    """``sync.ports.TableReader``."""

    @cached_property
    def shape(self) -> RowShape:
        table = self.plan.feed.table
        return RowShape(
            key=table.key,
            own=own_columns(self.plan),
            values=value_columns(table, self.plan.settings.temporal),
            order=(),
            position=POSITION,
            operation=OPERATION,
            mask=MASK,
            committed_at=COMMITTED_AT if self.plan.has_commit_times else "",
        )

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        with self.connected() as session:
            yield from self.read_at(session, interval)

    def read_at(self, session: SourceSession, interval: Interval, *, is_cut: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the changes as a session sees them that has begun a transaction. is_cut: none after the interval."""
        after, to = number_of(interval.after), (number_of(interval.to),) if is_cut else ()
        commits, clock = self._clocked_commits(session) if self.plan.has_commit_times else ("", ())
        text = select_changes(self.plan, commits, is_cut=is_cut)
        yield from self.read_over(session, text, (after, *((*clock, after) if commits else ()), *to))

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        batches = super().read_chunk(chunk)
        if self.plan.is_log or not self.plan.has_commit_times:
            return batches
        with self.connected() as session:
            commits, clock = self._clocked_commits(session, is_one=True)
            found = session.fetch(commits, (*clock, number_of(self.end.position))) if commits else []
        at = pa.scalar(found[0][1] if found else None, pa.timestamp("us"))
        return (batch.append_column(COMMITTED_AT, pa.repeat(at, batch.num_rows)) for batch in batches)

    def _clocked_commits(self, session: SourceSession, *, is_one: bool = False) -> tuple[str, tuple[object, ...]]:
        """Return ``select_commits`` with the parameters of the clock; "" where the login may not see the times."""
        [(sees_times,)] = session.fetch(select_sight())
        if not sees_times:
            return "", ()
        clock = read_clock(session, is_guessed=True)
        return select_commits(has_zone=isinstance(clock[0], str), is_one=is_one), clock

    def require_end(self, session: SourceSession) -> None:
        require_version(session, self.end, str(self.plan.source))
        if self.plan.keeps_changes and session.fetch(select_snapshot_state())[0][0] != SNAPSHOT_ON:
            style = self.plan.settings.style.value
            raise ConfigError(
                str(self.plan.source),
                f"style: {style}, and database {self.source.database} does not allow snapshot isolation, without which "
                "a version may come with the values of a later one.",
                f"Allow it: ALTER DATABASE {bracket(self.source.database)} SET ALLOW_SNAPSHOT_ISOLATION ON. Or set "
                "style: current.",
            )


# --------------------------------------------------------------------------------------------------------------------
# ``SnapshotRead``: all tables of a window over one connection, in one SNAPSHOT transaction.
#
# Every statement of the transaction sees the same moment, so the current version that is read first is the end of all
# changes that are read after it. Parallel connections would see different moments. The changes are net already.


@dataclass(frozen=True)
class SnapshotRead:
    """``sync.ports.ReadTask``."""

    tables: Mapping[int, TablePlan]
    """By their places in the plan of the window. Each is read since its watermark."""
    pipeline: str
    end: LogEntry
    """The planned end of the window."""
    source: SqlServerConnection
    changes: int | None = None
    keeps_end: bool = False
    """The window ends where it was planned, and the next one reads again what was committed since."""
    is_net: bool = True

    def read(self) -> Iterator[Found]:
        """Yield the moment of the transaction, and the changes, of each table."""
        with connect(self.source, subject=self.pipeline) as session:
            session.limit_lock_waits()
            session.fetch_sets("SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRANSACTION")
            # Closing the session ends the transaction, which has changed nothing.
            end = require_version(session, self.end, self.pipeline)
            for index, table in self.tables.items():
                yield index, end
                yield from found_of(index, table, self.read_table(session, table))

    def read_table(self, session: SourceSession, table: TablePlan) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a table. Raises InstanceReplacedError or WindowExpiredError where they are not complete.

        Metadata may be newer than the transaction: what was valid later was valid at its moment.
        """
        assert table.interval is not None  # noqa: S101  (first loads are not read so)
        subject, identity = str(table.source), table.feed.identity
        found = session.fetch(select_tracking(), (identity.object_id,))
        # A table that is not tracked has no such begin.
        begin, min_valid, side = found[0] if found else (-1, None, None)
        present = replace(identity, name=feed_name(table.feed.table.name, begin), store_id=side or 0)
        if present.is_successor(identity):
            raise InstanceReplacedError(subject, TRACKING_WORDS.replaced(identity, identity))
        if min_valid is None or min_valid > number_of(table.interval.after):
            said = TRACKING_WORDS.expired(table.interval.after, str(min_valid))
            raise WindowExpiredError(subject, said.cause)
        reader = TrackingReader(table, self.source, self.end)
        # Read again, a change may have another operation: a target that keeps all changes would have both.
        yield from reader.read_at(session, table.interval, is_cut=self.keeps_end and table.keeps_changes)


# --------------------------------------------------------------------------------------------------------------------
# The reads of a window: one at one moment or, where the source does not allow that, one for each table, which
# CHANGETABLE cannot cut.


_NOT_ALLOWED = (
    "Snapshot isolation is not allowed in database %s: the tables of the window are read one after the other, and may "
    "differ from each other by what is committed meanwhile. Allow it with ALTER DATABASE ... SET "
    "ALLOW_SNAPSHOT_ISOLATION ON."
)


def plan_tracking_reads(plan: WindowPlan, most: int) -> WindowReads:
    """Return the reads of a window, over the connection that the environment names."""
    return plan_reads(plan, most, SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE]))


def plan_reads(plan: WindowPlan, most: int, source: SqlServerConnection) -> WindowReads:
    """Return the reads of a window. ``most`` is not used.

    A table that had no change when the window was planned is read as well where all are read at one, later, moment.
    """
    tables = {index: table for index, table in enumerate(plan.tables) if table.interval is not None}
    if not tables:
        return WindowReads([], changes=0)
    with connect(source, subject=plan.pipeline) as session:
        session.limit_lock_waits()
        if session.fetch(select_snapshot_state())[0][0] == SNAPSHOT_ON:
            counted, keeps_end = _try_count(session, tables), len(tables) < len(plan.tables)
            changes = sum(counted.values()) if len(counted) == len(tables) else None
            few = changes if all(number <= WHOLE_CHANGES for number in counted.values()) else None
            read = SnapshotRead(tables, plan.pipeline, plan.end, source, few, keeps_end)
            return WindowReads([read], changes=changes)
        _LOG.warning(_NOT_ALLOWED, source.database)
        counted = _count_changes(session, {index: each for index, each in tables.items() if not each.quiet})
    return read_tables(plan, lambda table, end: TrackingReader(table, source, end), counted)


def _try_count(session: SourceSession, tables: Mapping[int, TablePlan]) -> dict[int, int]:
    """Return ``_count_changes``, or nothing where the read will find the error."""
    try:
        return _count_changes(session, tables)
    except FloodmarkError:
        return {}


def _count_changes(session: SourceSession, tables: Mapping[int, TablePlan]) -> dict[int, int]:
    """Return the number of changes of each table that has at most ``COUNTED_CHANGES``."""
    if not tables:
        return {}
    counts = [
        f"SELECT {index} AS number, COUNT(*) AS changes FROM (SELECT TOP ({COUNTED_CHANGES + 1}) 1 AS one"  # noqa: S608
        f" FROM CHANGETABLE(CHANGES {bracket_table(table.feed.table.name)}, ?) AS c) AS counted"
        for index, table in tables.items()
    ]
    parameters = tuple(number_of(table.interval.after) for table in tables.values() if table.interval is not None)
    found = session.fetch(" UNION ALL ".join(counts), parameters)
    return {index: changes for index, changes in found if changes <= COUNTED_CHANGES}
