"""The operations on a source with CDC: drift, replay, retention, the jobs, the hazards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from floodmark.core.capture import (
    CaptureJobStatus,
    LogScan,
    SourceUser,
    bracket_table,
    enable_table,
    insert_heartbeat,
    make_heartbeat,
)
from floodmark.core.drift import COUNTED_CHANGES, LivingInstance, RowsAtRisk
from floodmark.core.errors import (
    CdcNotEnabledError,
    FloodmarkError,
    SourceAdminError,
    SourcePermissionError,
    SourceUnavailableError,
)
from floodmark.core.position import Interval, Lsn, Position, read_lsn
from floodmark.core.recovery import LocalSpan, MappedTimes, local_span
from floodmark.core.schema import Operation, SourceColumn, TableName
from floodmark.core.settings import TemporalPolicy
from floodmark.core.shapes import DdlEntry, TypeChange, classify_type
from floodmark.core.snapshot import FeedIdentity
from floodmark.core.upkeep import ChangeTableSize, RetentionStatus
from floodmark.core.verdicts import Heartbeat
from floodmark.sources.cdc.doctor import Hazards
from floodmark.sources.sqlserver.driver import (
    CONTROL_TIMEOUT_SECONDS,
    SourceSession,
    SqlServerConnection,
    connect,
    list_truncating,
)
from floodmark.sources.sqlserver.tables import Row, change_table, read_source_column, read_sql, round_to_tick
from floodmark.sync.records import DriftFacts, TableDetails


class _Operations:
    """The operations on one database. Each call opens and closes one connection."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def _connect(self, timeout_seconds: int = CONTROL_TIMEOUT_SECONDS) -> SourceSession:
        return connect(self._connection, query_timeout_seconds=timeout_seconds)


# --------------------------------------------------------------------------------------------------------------------
# ``SqlServerDriftSource``: the details of capture instances, for schema drift.
#
# A snapshot compares names. This module reads column ids, which show that a column was dropped and added again. It also
# reads the DDL history, by instance, so that it belongs to an existing one: the rows of dropped instances would produce
# the same event again and again.


_CAPTURED_NAME, _CAPTURED_ID = 3, 4
_HISTORY_COMMAND, _HISTORY_LSN, _HISTORY_AT = 4, 5, 6


class SqlServerDriftSource(_Operations):
    """``sync.records.DriftSource`` for SQL Server 2016 and later and Azure SQL."""

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        """Return the details by one batch per instance, with a constant text, and one batch for the list."""
        with self._connect() as session:
            [[(database, user, is_owner)], *sets] = session.fetch_sets(read_sql("list_instances"))
            details = {}
            for instance, table in asked.items():
                try:
                    captured, history, columns = session.fetch_sets(
                        read_sql("read_drift"), [instance, bracket_table(table)]
                    )
                except (SourcePermissionError, CdcNotEnabledError):
                    # The instance was dropped meanwhile, or a right was revoked: the next check reports which.
                    continue
                # A table without columns does not exist: it was renamed or dropped meanwhile, and has not lost its
                # columns.
                if columns:
                    details[instance] = build_details(captured, history, columns)
        login = SourceUser(database, user, is_owner=is_owner == 1)
        return DriftFacts(details, tuple(_living(row) for row in (sets[0] if sets else [])), login)

    def read_risk(self, table: TableName, instance: str, since: Position | None) -> RowsAtRisk:
        """Return the rows at risk. It is read once per event, not at every check."""
        text = read_sql("read_risk").format(change_table=change_table(instance), limit=COUNTED_CHANGES)
        with self._connect() as session:
            session.limit_lock_waits()
            # No change is after the highest LSN, so none is counted.
            after = since.value if since else b"\xff" * 10
            ((table_rows, change_rows),) = session.fetch(text, (bracket_table(table), after))
        return RowsAtRisk(None if table_rows is None else int(table_rows), int(change_rows) if since else None)


def build_details(captured: Sequence[Row], history: Sequence[Row], columns: Sequence[Row]) -> TableDetails:
    """Return the details of the result sets of ``read_drift.sql``."""
    living = {row[1]: row[0] for row in columns}
    captured_ids = {row[_CAPTURED_ID] for row in captured}
    return TableDetails(
        lost=tuple(row[_CAPTURED_NAME] for row in captured if row[_CAPTURED_ID] not in living),
        uncaptured=tuple(read_source_column(row) for row in columns if row[1] not in captured_ids),
        history=tuple(
            DdlEntry(Lsn(bytes(row[_HISTORY_LSN])), row[_HISTORY_AT], row[_HISTORY_COMMAND] or "") for row in history
        ),
    )


def _living(row: Row) -> LivingInstance:
    """Return the instance of a row of sys.sp_cdc_help_change_data_capture."""
    (schema, table, name, object_id, _, _, _, net, _, role, index, filegroup, created_at, _, _) = row
    return LivingInstance(
        FeedIdentity(name, object_id, round_to_tick(created_at)),
        TableName(schema, table),
        bool(net),
        role,
        index,
        filegroup,
    )


# --------------------------------------------------------------------------------------------------------------------
# ``SqlServerReplaySource``: the source's clock, the times of its log, and the number of changes to replay.


_COUNT_TIMEOUT_SECONDS = 600


class SqlServerReplaySource(_Operations):
    """``sync.replay.ReplaySource``."""

    def read_local_time(self, at: datetime) -> LocalSpan:
        at_utc = at.astimezone(UTC).replace(tzinfo=None)
        with self._connect() as session:
            earliest, latest, offset = session.fetch(read_sql("read_local_time"), (_text(at_utc),))[0]
        return local_span(at_utc, LocalSpan(earliest, latest) if earliest else None, offset)

    def map_times(self, from_at: datetime, to_at: datetime) -> MappedTimes:
        with self._connect() as session:
            found = session.fetch(read_sql("map_times"), (_text(from_at), _text(to_at)))[0]
        first, last, before, oldest_at, newest_at = found
        return MappedTimes(_lsn(first), _lsn(last), _lsn(before) is not None, oldest_at, newest_at)

    def count_changes(self, intervals: Mapping[str, Interval], limit: int = 0) -> Mapping[str, int]:
        """Return the number of changes per change table, without images before an update, which are not read."""
        counts = {}
        with self._connect(_COUNT_TIMEOUT_SECONDS) as session:
            for instance, interval in intervals.items():
                text = (
                    f"SELECT COUNT_BIG(*) FROM (SELECT {f'TOP ({limit}) ' if limit else ''}1 AS one"  # noqa: S608
                    f" FROM {change_table(instance)} WHERE [__$start_lsn] > ? AND [__$start_lsn] <= ?"
                    f" AND [__$operation] <> {Operation.BEFORE_UPDATE.value}) AS counted"
                )
                bounds = (interval.after.value, interval.to.value)
                counts[instance] = int(session.fetch(text, bounds)[0][0])
        return counts


def _text(at: datetime) -> str:
    return at.isoformat(timespec="microseconds" if at.microsecond else "seconds")


def _lsn(value: bytes | None) -> Position | None:
    found = read_lsn(value)
    return found if isinstance(found, Position) else None


# --------------------------------------------------------------------------------------------------------------------
# ``SqlServerJobs``: reads and controls CDC's capture and cleanup jobs through the server's own procedures.


_CAPTURE = "capture"
_JOB_COLUMNS = ("maxtrans", "maxscans", "continuous", "pollinginterval", "retention", "threshold")
_STATE_LIMIT_SECONDS = 30.0
_REFUSED_LIMIT_SECONDS = 5.0
_POLL_SECONDS = 0.2


class SqlServerJobs(_Operations):
    """The CDC jobs of a database."""

    def read_capture(self) -> CaptureJobStatus:
        """Return the current status of the capture job."""
        with self._connect() as session:
            databases, jobs, scans, errors = session.fetch_sets(read_sql("read_capture"))
        database, edition, taken_at, running, log_reuse_wait, used, newest_entry_at, ahead, is_replica = databases[0]
        return CaptureJobStatus(
            database=database,
            engine_edition=edition,
            taken_at=taken_at,
            job=read_jobs(jobs).get(_CAPTURE),
            running=None if running is None else bool(running),
            log_reuse_wait=log_reuse_wait,
            log_used_percent=used,
            newest_entry_at=newest_entry_at,
            scan=LogScan(scans[0][0], scans[0][1] or 0, scans[0][2] or 0, scans[0][3] or 0) if scans else None,
            error=f"{errors[0][0]}: {errors[0][1]}" if errors else None,
            clock_ahead_seconds=clock_ahead_seconds(ahead),
            is_replica=bool(is_replica),
        )

    def start_capture(self) -> None:
        """Start the job and return when it runs. Harmless where it already runs."""
        self._switch_to(running=True)

    def stop_capture(self) -> None:
        """Stop the job and return when it no longer runs. Harmless where it does not run."""
        self._switch_to(running=False)

    def change_capture(self, changes: Mapping[str, int]) -> None:
        """Change parameters of sys.sp_cdc_change_job, by name. A running job uses them after its next start."""
        with self._connect() as session:
            change_job(session, _CAPTURE, changes)

    def read_heartbeat(self, table: TableName) -> Heartbeat:
        """Return the heartbeat. Raises CdcNotEnabledError where the table does not exist or is not captured."""
        name = bracket_table(table)
        with self._connect() as session:
            instance = session.fetch(read_sql("read_heartbeat_instance"), (name, name))[0]
            if instance[0] is None:
                raise CdcNotEnabledError(str(table), "the table does not exist.", make_heartbeat(table))
            if instance[1] is None:
                raise CdcNotEnabledError(str(table), "its changes are not captured.", enable_table(table))
            text = read_sql("read_heartbeat").format(table=name, change_table=change_table(instance[1]))
            rows = session.fetch(text)
        if not rows:
            raise CdcNotEnabledError(str(table), "its row no longer exists.", insert_heartbeat(table))
        return Heartbeat(*rows[0])

    def beat(self, table: TableName, *, afresh: bool) -> None:
        """Write the next beat. afresh: all earlier beats have arrived or no longer count."""
        with self._connect() as session:
            session.fetch_sets(read_sql("beat").format(table=bracket_table(table)), (int(afresh),))

    def _switch_to(self, *, running: bool) -> None:
        """Start or stop the job, and wait until it is in that state.

        The Agent works asynchronously, and refuses a request that another session has made already, without an error
        number. So only the state of the job shows whether the request succeeded.
        """
        with self._connect() as session:
            if _is_running(session) == running:
                return
            refusal = None
            try:
                session.fetch_sets(read_sql("start_capture" if running else "stop_capture"))
            except FloodmarkError as error:
                refusal = error
            deadline = time.monotonic() + (_REFUSED_LIMIT_SECONDS if refusal else _STATE_LIMIT_SECONDS)
            while _is_running(session) != running:
                is_late = time.monotonic() > deadline
                if is_late and refusal is not None:
                    # The Agent's message is about its jobs and contains no value of a row.
                    raise SourceAdminError(
                        str(self._connection),
                        f"the capture job was not {'started' if running else 'stopped'}: "
                        f"{refusal.detail or refusal.message}",
                        "Check the job's history in SQL Server Agent, and whether the Agent is running.",
                    )
                if is_late:
                    raise SourceUnavailableError(
                        str(self._connection),
                        f"the capture job did not {'start' if running else 'stop'} in {_STATE_LIMIT_SECONDS:.0f} s.",
                        "Check the job's history in SQL Server Agent.",
                    )
                threading.Event().wait(_POLL_SECONDS)


def clock_ahead_seconds(minutes: int | None) -> float:
    """Return how far the clock was set forward. One set back makes ages shorter, which no limit must allow for."""
    return max(minutes or 0, 0) * 60.0


def read_jobs(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Return the jobs by type from ``sys.sp_cdc_help_jobs``.

    Columns are taken from the end: some versions have job_name after job_type.
    """
    return {
        row[1]: {name: int(value) for name, value in zip(_JOB_COLUMNS, row[-len(_JOB_COLUMNS) :], strict=True)}
        for row in rows
    }


def _is_running(session: SourceSession) -> bool | None:
    running = session.fetch(read_sql("read_capture_running"))[0][0]
    return None if running is None else bool(running)


def change_job(session: SourceSession, job_type: str, changes: Mapping[str, int]) -> None:
    """Change a job. The names are those of the procedure's parameters; values are bound."""
    unknown = set(changes) - set(_JOB_COLUMNS)
    if unknown:
        raise ValueError(f"sys.sp_cdc_change_job has no {', '.join(sorted(unknown))}")
    values = [job_type, *(changes.get(name) for name in _JOB_COLUMNS)]
    session.fetch_sets(read_sql("change_job"), values)


# --------------------------------------------------------------------------------------------------------------------
# The sizes of the change tables, read over the caller's connection.


_HIDDEN = (None, None, None, None)


def read_sizes(session: SourceSession) -> tuple[ChangeTableSize, ...]:
    """Return the sizes for every capture instance that the login may see; none where CDC is not enabled."""
    try:
        sets = session.fetch_sets(read_sql("read_sizes"))
    except (CdcNotEnabledError, SourcePermissionError):
        return ()
    instances, change_tables = sets or ((), ())
    found = {row[0]: row for row in change_tables}
    sizes = []
    for schema, table, instance, object_id, *_ in instances:
        _, low_end, rows, size_bytes = found.get(object_id, _HIDDEN)
        lsn = read_lsn(low_end)
        sizes.append(
            ChangeTableSize(
                instance,
                TableName(schema, table),
                None if rows is None else int(rows),
                None if size_bytes is None else int(size_bytes),
                lsn if isinstance(lsn, Position) else None,
            )
        )
    return tuple(sizes)


# --------------------------------------------------------------------------------------------------------------------
# ``SqlServerRetention``: reads and controls CDC's cleanup through the server's own procedures.


_CLEANUP = "cleanup"
_CLEANUP_TIMEOUT_SECONDS = 1800


class SqlServerRetention(_Operations):
    """The retention of a database with CDC."""

    def read_retention(self) -> RetentionStatus:
        """Return the current status of the cleanup job and the change tables."""
        with self._connect() as session:
            newest, jobs = session.fetch_sets(read_sql("read_retention"))
            sizes = read_sizes(session)
        job = read_jobs(jobs).get(_CLEANUP)
        return RetentionStatus(
            retention_minutes=job["retention"] if job else None,
            threshold=job["threshold"] if job else None,
            newest_entry_at=newest[0][0],
            sizes=sizes,
            is_replica=bool(newest[0][1]),
        )

    def read_time_at(self, position: Position) -> datetime | None:
        """Return the commit time of the newest log entry up to a position, or else of the oldest; None without any."""
        with self._connect() as session:
            found: datetime | None = session.fetch(read_sql("read_time_at"), (position.value,))[0][0]
        return found

    def change_cleanup(self, changes: Mapping[str, int]) -> None:
        """Change parameters of sys.sp_cdc_change_job, by name. The job uses them in its next run."""
        with self._connect() as session:
            change_job(session, _CLEANUP, changes)

    def read_low_water_mark(self, watermark: Position, margin_seconds: float) -> Position | None:
        """Return the newest log entry that is older than the watermark by the margin; None where there is none."""
        parameters = (watermark.value, int(margin_seconds), watermark.value)
        with self._connect() as session:
            found = read_lsn(session.fetch(read_sql("read_low_water_mark"), parameters)[0][0])
        return found if isinstance(found, Position) else None

    def clean_instance(self, instance: str, low_water_mark: Position, threshold: int) -> bool:
        """Delete the changes below the mark. Return False where some rows are left for the next time."""
        with self._connect(_CLEANUP_TIMEOUT_SECONDS) as session:
            parameters = (instance, low_water_mark.value, threshold)
            sets = session.fetch_sets(read_sql("cleanup_change_table"), parameters)
        return not sets[-1][0][0]


# --------------------------------------------------------------------------------------------------------------------
# Hazards of a database for ``doctor``, read over the caller's connection with the login's rights.


_ROWVERSION = "timestamp"
_SETS_WITHOUT_CDC = 3
_SETS_OF_OWNER = 6


def read_hazards(session: SourceSession) -> Hazards:
    """Return the hazards that the login may see."""
    sets = session.fetch_sets(read_sql("read_hazards"))
    accelerated, has_schema, has_user, is_user_owner, sees_policies = sets[0][0]
    return Hazards(
        accelerated_recovery=None if accelerated is None else bool(accelerated),
        has_schema=bool(has_schema),
        has_user=bool(has_user),
        is_user_owner=None if is_user_owner is None else bool(is_user_owner),
        sees_policies=bool(sees_policies),
        partitioned=frozenset(TableName(*row) for row in sets[1]),
        truncating=list_truncating(sets[2]),
        switchable={row[0]: bool(row[1]) for row in sets[5]} if len(sets) == _SETS_OF_OWNER else None,
        unlike=build_unlike(sets[3], sets[4]) if len(sets) > _SETS_WITHOUT_CDC else {},
    )


def build_unlike(instances: Iterable[Row], columns: Iterable[Row]) -> dict[TableName, tuple[str, ...]]:
    """Return the columns of each table whose type differs from the change table's; a type that was widened does not.

    instances: the rows of sys.sp_cdc_help_change_data_capture. columns: those of tracked tables and of change tables.
    """
    columns_of: dict[int, dict[str, SourceColumn]] = {}
    for object_id, *row in columns:
        columns_of.setdefault(object_id, {})[row[0]] = read_source_column(tuple(row))
    found: dict[TableName, tuple[str, ...]] = {}
    for schema, table, instance, change_table_id, source_id, *_ in instances:
        name = TableName(schema, table)
        captured = columns_of.get(change_table_id, {})
        unlike = [
            f"{column.name}: {column.declared_type}, in {instance} still {before.declared_type}"
            for column in columns_of.get(source_id, {}).values()
            if (before := captured.get(column.name)) is not None and _may_not_fit(before, column)
        ]
        if unlike:
            found[name] = (*found.get(name, ()), *unlike)
    return found


def _may_not_fit(before: SourceColumn, after: SourceColumn) -> bool:
    # A rowversion is binary(8) in a change table.
    return after.type_name != _ROWVERSION and classify_type(before, after, TemporalPolicy.TEXT) not in (
        None,
        TypeChange.WIDENED,
    )
