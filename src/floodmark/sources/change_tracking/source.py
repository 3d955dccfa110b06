"""``TrackingSource``: the control queries of a run on a database with change tracking."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from floodmark.core.drift import CDC_DRIFT_WORDS, DriftWords, LivingInstance, RowsAtRisk
from floodmark.core.position import NoPosition, Position, Version
from floodmark.core.progress import SourceProgress
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import DriftClass
from floodmark.core.snapshot import (
    Feed,
    FeedIdentity,
    MemberMark,
    Sentences,
    SourceSnapshot,
    SourceWords,
    TableSnapshot,
)
from floodmark.core.upkeep import HOLD_MINUTES
from floodmark.sources.change_tracking.doctor import TrackingFacts
from floodmark.sources.sqlserver.driver import (
    CONTROL_TIMEOUT_SECONDS,
    SourceSession,
    SqlServerConnection,
    build_identity,
    connect,
    list_truncating,
)
from floodmark.sources.sqlserver.tables import (
    FoundTable,
    Row,
    build_tables,
    encode_names,
    find_table,
    grouped,
    read_source_column,
    read_sql,
    round_to_tick,
)
from floodmark.sync.records import DriftFacts, TableDetails

# --------------------------------------------------------------------------------------------------------------------
# The name of a table's change tracking, which changes when its history is lost.


def feed_name(table: TableName, begin_version: int) -> str:
    """Return the name. TRUNCATE TABLE, and switching the tracking off and on, set begin_version to the current version.

    Where no version was given since the tracking began, it stays the same: the side table is another one.
    """
    return f"{table}@{begin_version}"


# --------------------------------------------------------------------------------------------------------------------
# The sentences of verdicts and of drift about a source that is read by change tracking.


class TrackingWords(SourceWords):
    """The sentences about SQL Server Change Tracking."""

    def describe_capture(self, capture_running: bool | None) -> str:
        return "each transaction records its changes itself"

    def not_enabled(self, database: str) -> Sentences:
        return Sentences(
            f"change tracking is not enabled in database {database}.",
            "Run ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 7 DAYS) there, then ALTER TABLE"
            " ... ENABLE CHANGE_TRACKING for the table.",
        )

    def no_permission(self) -> Sentences:
        return Sentences(
            "the login may not read the changes of the table.",
            "Grant the login SELECT and VIEW CHANGE TRACKING on the table.",
        )

    def no_feed(self, wanted: str | None, others: tuple[str, ...], read: FeedIdentity | None) -> Sentences:
        was = " It was when it was read last: the changes since then are only in the table itself." if read else ""
        return Sentences(
            f"change tracking is not enabled for the table, or the login may not see that it is.{was}",
            "Run ALTER TABLE ... ENABLE CHANGE_TRACKING for it, and grant the login VIEW CHANGE TRACKING on it.",
        )

    def describe_feed(self, identity: FeedIdentity) -> str:
        table, _, begin = identity.name.rpartition("@")
        return f"change tracking of {table} since version {begin} (object {identity.object_id})"

    def replaced(self, found: FeedIdentity, known: FeedIdentity) -> str:
        if found.object_id != known.object_id:
            return "the table was dropped and created again. The changes of the earlier table are lost."
        return (
            "the table was truncated, or its change tracking was switched off and on: what happened before that is "
            "not in the changes."
        )

    def unproven(self, watermark: Position) -> Sentences:
        return Sentences(
            f"the table is read as a whole: its tracking began at the watermark {watermark}, and whether it has begun "
            "again since (TRUNCATE TABLE, off and on) is not known of it.",
            "This ends with the first tracked change of the database. Where the login shall see it before: GRANT VIEW "
            "DEFINITION on the table, which shows the side table in sys.internal_tables.",
        )

    def expired(self, watermark: Position, low_end: str) -> Sentences:
        return Sentences(
            f"changes after the watermark {watermark} have been cleaned up: they are complete from {low_end} on.",
            "raise the retention (ALTER DATABASE ... SET CHANGE_TRACKING (CHANGE_RETENTION = ...)) or run more often.",
        )


TRACKING_WORDS = TrackingWords()

_EFFECTS = {
    **CDC_DRIFT_WORDS.effects,
    DriftClass.COLUMN_ADDED: "It is read from now on. The values that existing rows got by its default are no changes: "
    "in the target they are NULL until the row changes.",
    DriftClass.TYPE_NARROWED: "The target's column stays as wide as it is.",
    DriftClass.TABLE_RENAMED: "Its changes are still recorded, but the configured table does not exist.",
    DriftClass.TABLE_DROPPED: "Its changes were dropped with it. The target stays as it is.",
    DriftClass.CDC_DISABLED: "Later changes are not recorded. The target stays as it is.",
    DriftClass.INSTANCE_REPLACED: "Changes between the two are not recorded.",
}
_ADVICE = {
    **CDC_DRIFT_WORDS.advice,
    DriftClass.COLUMN_ADDED: "Where these values are needed, load them: floodmark reload.",
    DriftClass.KEY_CHANGED: "Give the target the same key by hand, or change it back at the source; then end the hold.",
    DriftClass.CDC_DISABLED: "Run ALTER TABLE ... ENABLE CHANGE_TRACKING and reload the table: changes made in between "
    "are only in the table itself.",
}
TRACKING_DRIFT_WORDS = DriftWords(
    _EFFECTS,
    _ADVICE,
    effect_of_obstacle="Its values can never reach the target. All columns of a table are read but the computed ones: "
    "unless it is computed, the table is left out of windows (not_plannable) as long as it has the column.",
    keeps_ddl=False,
    has_instances=False,
)


# --------------------------------------------------------------------------------------------------------------------


class TrackingSource:
    """``sync.ports.Source`` for SQL Server 2016 and later and Azure SQL, with one connection per call."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        feeds: Mapping[TableName, str] | None = None,
        positions: Collection[Position] = (),
        marks: Mapping[TableName, Sequence[MemberMark]] | None = None,
        whole: Collection[TableName] = (),
    ) -> SourceSnapshot:
        """Return a snapshot, read by three statements with constant texts; by the first alone where no table is given.

        The current version is read before the newest changes, so that a table which counts as quiet is. A table has one
        change tracking, and no members: ``feeds`` and ``marks`` are not used.
        """
        asked = sorted(position.number for position in positions if isinstance(position, Version))
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            versions = b"".join(number.to_bytes(8) for number in asked)
            [[(database, current, taken_at, *names)], *times] = session.fetch_sets(
                read_sql("read_tracking"), (versions,)
            )
            described = _read_tables(session, tables, asked[0] if asked else None) if tables else _NONE
        entries: dict[Position, datetime | None] = {}
        if times:
            entries = {Version.of(number): at for number, at in times[0] if number is not None}
        newest = Version.of(current) if current is not None else NoPosition.NULL
        return SourceSnapshot(
            database=database,
            cdc_enabled=current is not None,
            newest=newest,
            newest_at=entries.get(newest) if isinstance(newest, Version) else None,
            taken_at=taken_at,
            seconds_behind=None,
            capture_running=None,
            tables=tuple(described.snapshot_of(table) for table in tables),
            entries=entries,
            has_agent=False,
            identity=build_identity(database, *names),
            is_synchronous=True,
            words=TRACKING_WORDS,
        )


class _Tables:
    """The tables that were asked for, as far as the login may see them."""

    def __init__(
        self,
        tables: Sequence[FoundTable],
        columns: Sequence[Row],
        keys: Sequence[Row],
        tracked: Sequence[Row],
        after: int | None = None,
    ):
        """after: the version after which the newest changes were read; None: they were not."""
        self._tables = tables
        self._columns, self._keys = grouped(columns), grouped(keys)
        self._tracked = {row[0]: row[1:] for row in tracked}
        self._after = None if after is None else Version.of(after)

    def snapshot_of(self, name: TableName) -> TableSnapshot:
        """Return what was found of one table."""
        found = find_table(self._tables, name)
        if found is None:
            return TableSnapshot(name, False, None, NoPosition.NULL)
        if found.object_id not in self._tracked:
            return TableSnapshot(name, True, None, NoPosition.NULL, server_name=found.name)
        begin, side, is_readable, is_end_known, last, min_valid, created_at = self._tracked[found.object_id]
        if not is_readable or min_valid is None:
            return TableSnapshot(name, True, None, NoPosition.NULL, permitted=False, server_name=found.name)
        return TableSnapshot(
            table=name,
            exists=True,
            feed=Feed(
                identity=FeedIdentity(
                    feed_name(found.name, begin), found.object_id, round_to_tick(created_at), side or 0
                ),
                table=SourceTable(found.name, self._columns_of(found), self._key_of(found)),
                start=Version.of(begin),
                supports_net_changes=True,
                has_command_id=False,
                delivers_net=True,
            ),
            # The lowest version whose changes are certainly there.
            oldest=Version.of(min_valid).next(),
            last_change=_newest(last) if is_end_known else None,
            changes_after=self._after,
            restarts_at=Version.of(begin),
            max_column_id=found.max_column_id,
            server_name=found.name,
            masked=found.masked,
            filters=found.filters,
        )

    def _columns_of(self, table: FoundTable) -> tuple[SourceColumn, ...]:
        """Return the columns with their ids as ordinals: a column that was dropped and added again has another one."""
        return tuple(
            read_source_column((row[1], row[-1], *row[2:-1])) for row in self._columns.get(table.object_id, [])
        )

    def _key_of(self, table: FoundTable) -> tuple[str, ...]:
        return tuple(row[1] for row in self._keys.get(table.object_id, []))


_NONE = _Tables((), (), (), ())


def _read_tables(session: SourceSession, tables: Sequence[TableName], after: int | None) -> _Tables:
    found, _, columns, keys, masked, filters = session.fetch_sets(
        read_sql("read_tables"), (encode_names(set(tables)), b"", bytes(10))
    )
    described = build_tables(found, masked, filters)
    objects = b"".join(table.object_id.to_bytes(4) for table in described)
    tracked = session.fetch(read_sql("read_tracked_tables"), (objects, after))
    return _Tables(described, columns, keys, tracked, after)


def _newest(version: int | None) -> Version | NoPosition:
    return NoPosition.NULL if version is None else Version.of(version)


# --------------------------------------------------------------------------------------------------------------------
# The progress of a source: its lead over the watermarks, and its retention.


_MINUTES = {1: 1, 2: 60, 3: 1440}
"""By the unit of sys.change_tracking_databases."""


def read_progress(connection: SqlServerConnection, watermarks: Iterable[Position]) -> SourceProgress:
    """Return the progress. Each transaction that changed a tracked table has one version.

    Without AUTO_CLEANUP changes are kept without end. A source may be quiet for longer than its retention: what counts
    is the first change after a watermark, and not the age of the watermark.
    """
    marks = {mark.number: mark for mark in watermarks if isinstance(mark, Version)}
    versions = b"".join(number.to_bytes(8) for number in marks)
    with connect(connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        [[(current, cleans_up, *retention)], unread] = session.fetch_sets(
            read_sql("read_tracking_retention"), (versions,)
        )
    minutes = minutes_of(*retention)
    return SourceProgress(
        {mark: max(current - number, 0) for number, mark in marks.items()} if current is not None else {},
        minutes if cleans_up or minutes is None else HOLD_MINUTES,
        first_unread_at={marks[version]: at for version, at in unread if at is not None},
    )


def minutes_of(period: int | None, unit: int | None) -> int | None:
    """Return a retention in minutes, None without one. unit: of sys.change_tracking_databases."""
    return None if period is None or unit is None else period * _MINUTES[unit]


# --------------------------------------------------------------------------------------------------------------------
# Facts about a database with change tracking for ``core.doctor``, read over one connection with the login's rights.


def read_tracking_facts(connection: SqlServerConnection) -> TrackingFacts:
    """Return the facts that the login may see."""
    with connect(connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        [[row], modules] = session.fetch_sets(read_sql("read_tracking_facts"))
    (version, edition, database, user, owner, state, at_utc, offset, oldest, snapshot, *retention, policies) = row
    period, unit, cleans_up = retention
    return TrackingFacts(
        product_version=version,
        engine_edition=edition,
        database=database,
        user=user,
        is_db_owner=bool(owner),
        may_view_state=bool(state),
        taken_at_utc=at_utc,
        utc_offset_minutes=offset,
        retention_minutes=minutes_of(period, unit),
        cleans_up=bool(cleans_up),
        allows_snapshot=snapshot,
        oldest_seconds=oldest,
        sees_policies=bool(policies),
        truncating=list_truncating(modules),
    )


# --------------------------------------------------------------------------------------------------------------------
# ``TrackingDriftSource``: the details of tables, for schema drift.
#
# CHANGETABLE is joined with the table itself, so that every column of the table is read, and none is lost. There is no
# history of DDL: two snapshots are compared, and what a column was between them is not known.


class TrackingDriftSource:
    """``sync.records.DriftSource`` for change tracking."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        """Return the tracked tables by their present names. A snapshot has all details of those that were asked for."""
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            rows = session.fetch(read_sql("list_tracked_tables"))
        tables = []
        for schema, name, object_id, created_at, begin in rows:
            table = TableName(schema, name)
            identity = FeedIdentity(feed_name(table, begin), object_id, round_to_tick(created_at))
            tables.append(LivingInstance(identity, table))
        return DriftFacts({name: TableDetails() for name in asked}, tuple(tables))

    def read_risk(self, table: TableName, instance: str, since: Position | None) -> RowsAtRisk:
        """Return unknown numbers: no column is left out, and a value by a default does not differ from another."""
        return RowsAtRisk(None)
