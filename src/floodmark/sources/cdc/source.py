"""``SqlServerSource``: the control queries of a run on a database with CDC."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.capture import AZURE_SQL_DATABASE, bracket_table
from floodmark.core.errors import CdcNotEnabledError, OperatorError, SourcePermissionError
from floodmark.core.position import Lsn, NoPosition, Position, read_lsn
from floodmark.core.progress import SourceProgress
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.snapshot import (
    Feed,
    FeedIdentity,
    MemberMark,
    SourceSnapshot,
    TableSnapshot,
    WiderInstance,
)
from floodmark.sources.cdc.doctor import CdcFacts, Jobs
from floodmark.sources.cdc.operations import clock_ahead_seconds, read_hazards, read_sizes
from floodmark.sources.sqlserver.driver import (
    CONTROL_TIMEOUT_SECONDS,
    SourceSession,
    SqlServerConnection,
    build_identity,
    connect,
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

# --------------------------------------------------------------------------------------------------------------------
# The conversion of result sets of ``read_snapshot.sql`` and ``read_tables.sql`` to values of the core. No I/O.


COMMAND_ID = "__$command_id"
_OWN_COLUMNS = frozenset({"__$start_lsn", "__$end_lsn", "__$seqval", "__$operation", "__$update_mask", COMMAND_ID})
"""Exactly these: a column of a user may begin with ``__$`` too (docs/reference/sqlserver_cdc.md, "Row shapes")."""
_BRACKETED = re.compile(r"\[((?:[^\]]|\]\])*)\]")
_ROWVERSION = "timestamp"


_UNSEEN: Row = (None, None, bytes(10), 0, None, 0, None)
"""The row of a change table that the login may not see."""


@dataclass(frozen=True, slots=True)
class FoundInstance:
    """A capture instance of table ``source_object_id``."""

    name: str
    source_object_id: int
    created_at: datetime
    oldest: Position | NoPosition
    readable: bool
    """The login may read the change table."""
    instance: Feed | None
    """The instance with its columns; None where it is not readable."""
    oldest_at: datetime | None = None
    """The commit time of ``oldest``."""
    last_change: Position | NoPosition | None = None
    """See ``TableSnapshot``; None also where the change table was locked."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tables that were asked for and their capture instances, as far as the login may see them."""

    tables: tuple[FoundTable, ...]
    instances: tuple[FoundInstance, ...] = ()

    def find_instance(self, table: FoundTable, pinned: str | None) -> FoundInstance | None:
        """Return the pinned instance; else the newest that the capture job has reached; else the newest."""
        mine = [instance for instance in self.instances if instance.source_object_id == table.object_id]
        if pinned is not None:
            mine = [instance for instance in mine if instance.name.casefold() == pinned.casefold()]
        return max(mine, key=_age, default=None)

    def find_wider(self, found: FoundInstance) -> WiderInstance | None:
        """Return the older instance of the same table that captures columns which the found one does not.

        A newer one is no accident: a switch of capture instances makes it, and drift has reported its columns.
        """
        if found.instance is None:
            return None
        mine = {column.name for column in found.instance.table.stored_columns}
        for other in self.instances:
            # First what rules out the instances of other tables: each table is compared with all of them.
            if other.source_object_id != found.source_object_id or other is found or other.instance is None:
                continue
            stored = [column.name for column in other.instance.table.stored_columns]
            more = tuple(name for name in stored if name not in mine)
            if more and other.created_at <= found.created_at:
                return WiderInstance(other.name, more)
        return None

    def list_instances(self, table: FoundTable) -> tuple[str, ...]:
        """Return the names of all capture instances of a table."""
        return tuple(sorted(each.name for each in self.instances if each.source_object_id == table.object_id))


def _age(found: FoundInstance) -> tuple[bool, datetime, str]:
    return isinstance(found.oldest, Position), found.created_at, found.name


def build_catalog(
    tables: Iterable[Row],
    instances: Iterable[Row] = (),
    change_tables: Iterable[Row] = (),
    columns: Iterable[Row] = (),
    primary_keys: Iterable[Row] = (),
    *,
    masked: Iterable[Row] = (),
    filters: Iterable[Row] = (),
) -> Catalog:
    """Return the catalog of the instances of ``read_snapshot.sql`` and the six result sets of ``read_tables.sql``."""
    columns_of = grouped(columns)
    keys_of = grouped(primary_keys)
    change_table_of = {row[0]: row for row in change_tables}
    return Catalog(
        tables=build_tables(tables, masked, filters),
        instances=tuple(_read_instance(row, change_table_of, columns_of, keys_of) for row in instances),
    )


def _read_instance(
    row: Row, change_table_of: Mapping[int, Row], columns_of: Mapping[int, list[Row]], keys_of: Mapping[int, list[Row]]
) -> FoundInstance:
    """Return the instance of a row of sys.sp_cdc_help_change_data_capture."""
    (
        schema,
        table,
        name,
        object_id,
        source_object_id,
        start_lsn,
        _end_lsn,
        net,
        _drop_pending,
        _role,
        index_name,
        _filegroup,
        created_at,
        index_columns,
        _captured,
    ) = row
    _, _, low_end, is_readable, min_lsn_at, is_end_known, last = change_table_of.get(object_id, _UNSEEN)
    captured = columns_of.get(object_id, [])
    readable = is_readable == 1 and bool(captured)
    instance = None
    if readable:
        # A row without an index repeats the index columns of the row before it.
        indexed = parse_column_list(index_columns) if index_name else ()
        instance = Feed(
            identity=FeedIdentity(name, object_id, round_to_tick(created_at)),
            table=SourceTable(
                name=TableName(schema, table),
                columns=_read_columns(captured, columns_of.get(source_object_id, [])),
                key=indexed or tuple(key[1] for key in keys_of.get(source_object_id, [])),
            ),
            start=Lsn(bytes(start_lsn)),
            supports_net_changes=bool(net),
            has_command_id=any(column[1] == COMMAND_ID for column in captured),
        )
    return FoundInstance(
        name,
        source_object_id,
        created_at,
        read_lsn(low_end),
        readable,
        instance,
        min_lsn_at,
        read_lsn(last) if is_end_known else None,
    )


def _read_columns(captured: Sequence[Row], source: Sequence[Row]) -> tuple[SourceColumn, ...]:
    """Return the change table's columns in mask order, with the details that only the source table has.

    A captured column that was dropped from the source table is left out: it is NULL in all changes after the drop, and
    these NULLs must not overwrite the target's values.
    """
    source_column = {row[1]: row for row in source}
    names = [row for row in captured if row[1] not in _OWN_COLUMNS]
    return tuple(
        _read_column(row, source_column[row[1]], ordinal)
        for ordinal, row in enumerate(names, 1)
        if row[1] in source_column
    )


def _read_column(captured: Row, source: Row, ordinal: int) -> SourceColumn:
    _, name, type_name, max_length, precision, scale, _, _, *collation = captured
    _, _, source_type, _, _, _, nullable, computed, *_ = source
    if source_type == _ROWVERSION:  # binary(8) in the change table
        type_name = source_type
    return read_source_column((name, ordinal, type_name, max_length, precision, scale, nullable, computed, *collation))


def parse_column_list(text: str | None) -> tuple[str, ...]:
    """Return the names of a list such as ``[a], [b ]]c]``."""
    return tuple(name.replace("]]", "]") for name in _BRACKETED.findall(text or ""))


# --------------------------------------------------------------------------------------------------------------------
# ``SqlServerSource``: the control queries of a run. ``change_reader`` reads the rows.


_LOG_POSITION, _ENTRIES, _INSTANCES = 1, 2, 3
"""The places of the result sets of ``read_snapshot.sql``."""
_INSTANCE_TABLE, _CHANGE_TABLE_ID = slice(0, 2), 3
"""The places of columns of sys.sp_cdc_help_change_data_capture."""


class SqlServerSource:
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
        """Return a snapshot, read by two statements with constant texts; by the first alone where no table is given.

        The second statement is sent when the first has returned: its view of the change tables is not older than
        max_lsn. It reads the low ends after the newest changes: changes that a cleanup removed meanwhile are below
        these low ends. A table has no members: ``marks`` is not used.
        """
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            requested = b"".join(position.value for position in positions)
            sets = session.fetch_sets(read_sql("read_snapshot"), (requested, bool(tables)))
            listed = sets[_INSTANCES] if len(sets) > _INSTANCES else []
            highest = sets[_LOG_POSITION][0][0] if listed else None
            catalog = _read_tables(session, tables, listed, highest) if tables else Catalog(())
        database, enabled, taken_at, running, edition, ahead, is_replica, *names = sets[0][0]
        clock_ahead = clock_ahead_seconds(ahead)
        max_lsn, max_lsn_at = sets[_LOG_POSITION][0] if enabled else (None, None)
        entries = sets[_ENTRIES] if enabled else []
        return SourceSnapshot(
            database=database,
            cdc_enabled=bool(enabled),
            newest=read_lsn(max_lsn),
            newest_at=max_lsn_at,
            taken_at=taken_at,
            seconds_behind=(max((taken_at - max_lsn_at).total_seconds() - clock_ahead, 0.0) if max_lsn_at else None),
            capture_running=None if running is None else bool(running),
            tables=tuple(_table_snapshot(catalog, table, (feeds or {}).get(table)) for table in tables),
            entries={Lsn(bytes(position)): committed_at for position, committed_at in entries},
            has_agent=edition not in AZURE_SQL_DATABASE,
            clock_ahead_seconds=clock_ahead,
            clock_back_seconds=clock_ahead_seconds(-(ahead or 0)),
            is_replica=bool(is_replica),
            identity=build_identity(database, *names),
        )


def _read_tables(
    session: SourceSession, tables: Sequence[TableName], listed: Sequence[Row], max_lsn: bytes | None
) -> Catalog:
    """Return the catalog of some tables.

    A table with an instance is asked for by the server's own spelling, which a case-sensitive collation requires.
    """
    spelled = {TableName(*row[_INSTANCE_TABLE]) for row in listed}
    folded = {name.folded: name for name in spelled}
    wanted = {table if table in spelled else folded.get(table.folded, table) for table in tables}
    captured = [row for row in listed if TableName(*row[_INSTANCE_TABLE]) in wanted]
    objects = b"".join(int(row[_CHANGE_TABLE_ID]).to_bytes(4) for row in captured)
    sets = session.fetch_sets(read_sql("read_tables"), (encode_names(wanted), objects, max_lsn or bytes(10)))
    found, *described, masked, filters = sets
    return build_catalog(found, captured, *described, masked=masked, filters=filters)


def _table_snapshot(catalog: Catalog, table: TableName, pinned: str | None) -> TableSnapshot:
    known = find_table(catalog.tables, table)
    found = catalog.find_instance(known, pinned) if known else None
    if found is None:
        # The procedure omits instances that the login may not see: for a tracked table without a visible instance the
        # login lacks a right.
        others = catalog.list_instances(known) if known is not None else ()
        permitted = known is None or not known.is_tracked or bool(others)
        return TableSnapshot(
            table,
            known is not None,
            None,
            NoPosition.NULL,
            permitted,
            searched_for=pinned,
            others=others,
            server_name=known.name if known else None,
        )
    return TableSnapshot(
        table=table,
        exists=True,
        feed=found.instance,
        oldest=found.oldest,
        permitted=found.readable,
        last_change=found.last_change,
        max_column_id=known.max_column_id if known else 0,
        oldest_at=found.oldest_at,
        searched_for=pinned,
        wider=catalog.find_wider(found),
        server_name=known.name if known else None,
        masked=known.masked if known else (),
        filters=known.filters if known else (),
    )


# --------------------------------------------------------------------------------------------------------------------
# Facts about a server for ``doctor``, read over one connection with the login's rights.


_INSTANCE, _ROLE = 2, 9
_JOB_TYPE, _CONTINUOUS, _RETENTION = 1, -4, -2


def read_facts(connection: SqlServerConnection) -> CdcFacts:
    """Return the facts that the login may see."""
    with connect(connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        sets = session.fetch_sets(read_sql("read_facts"))
        jobs = session.fetch_sets(read_sql("read_jobs"))
        hazards = read_hazards(session)
    (version, edition, database, user, owner, collation, lob_limit, agent, state, at_utc, offset) = sets[0][0]
    return CdcFacts(
        product_version=version,
        engine_edition=edition,
        database=database,
        user=user,
        is_db_owner=bool(owner),
        collation=collation,
        lob_limit_bytes=lob_limit,
        agent_running=None if agent is None else bool(agent),
        may_view_state=bool(state),
        taken_at_utc=at_utc,
        utc_offset_minutes=offset,
        jobs=build_jobs(jobs[0]) if jobs else None,
        other_collations=_by_table(sets[1]),
        roles={row[_INSTANCE]: row[_ROLE] for row in (sets[2] if len(sets) > 2 else []) if row[_ROLE]},
        hazards=hazards,
    )


def build_jobs(rows: Iterable[Row]) -> Jobs:
    """Return the jobs of the rows of ``read_jobs.sql``."""
    by_type = {row[_JOB_TYPE]: row for row in rows}
    capture, cleanup = by_type.get("capture"), by_type.get("cleanup")
    return Jobs(
        capture is not None,
        int(cleanup[_RETENTION]) if cleanup else None,
        is_continuous=capture is None or bool(capture[_CONTINUOUS]),
    )


def _by_table(rows: Iterable[Row]) -> dict[TableName, tuple[str, ...]]:
    found: dict[TableName, tuple[str, ...]] = {}
    for schema, table, column, collation in rows:
        name = TableName(schema, table)
        found[name] = (*found.get(name, ()), f"{column} ({collation})")
    return found


# --------------------------------------------------------------------------------------------------------------------
# ``SqlServerInstances``: creates and drops capture instances, as the operator has approved.


_ENABLE_TIMEOUT_SECONDS = 600
LOCK_WAIT_SECONDS = 15
"""The lock timeout. Both procedures need an exclusive schema lock on the table (Sch-M): they wait for all sessions that
use it, and all later readers and writers wait behind them."""


class SqlServerInstances:
    """The creation and the removal of capture instances."""

    def __init__(self, connection: SqlServerConnection, lock_wait_seconds: int = LOCK_WAIT_SECONDS) -> None:
        self._connection = connection
        self._lock_wait_seconds = lock_wait_seconds

    def make_instance(self, enabling: str) -> None:
        """Create an instance. enabling: the approved call of sys.sp_cdc_enable_table."""
        self._run(enabling)

    def drop_instance(self, table: TableName, instance: str) -> None:
        """Drop an instance."""
        self._run(read_sql("drop_instance"), table.schema, table.name, instance)

    def _run(self, text: str, *parameters: object) -> None:
        with connect(self._connection, query_timeout_seconds=_ENABLE_TIMEOUT_SECONDS) as session:
            session.limit_lock_waits(self._lock_wait_seconds)
            session.fetch_sets(text, parameters)


# --------------------------------------------------------------------------------------------------------------------
# The table in which the CDC Control Task of SSIS keeps its states, dbo.cdc_states by default.


def read_state(at: SqlServerConnection, table: TableName, name: str | None = None) -> str:
    """Return the state with a name, or the only one. Raises OperatorError where there is not one such state."""
    with connect(at, subject=str(table), query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        ((*found,),) = session.fetch_sets(read_sql("find_state_table"), (bracket_table(table),))
        if not found:
            raise OperatorError(
                str(table),
                f"database {at.database} has no such table with the columns name and state, or the login may not see "
                "it.",
                "Correct the name, grant SELECT on the table, or give the state as a file.",
            )
        spelled = bracket_table(TableName(*found[0]))
        (rows,) = session.fetch_sets(read_sql("read_states").format(table=spelled))
    states = {str(row[0]): str(row[1] or "") for row in rows}
    if name is None and len(states) == 1:
        return next(iter(states.values()))
    if name is None or name not in states:
        what = "it has no state" if name is None and not states else "it has several states"
        what = what if name is None else f"it has no state {name}"
        raise OperatorError(
            str(table), f"{what}.", f"Choose one (--state-name): {', '.join(sorted(states))}." if states else ""
        )
    return states[name]


# --------------------------------------------------------------------------------------------------------------------
# The progress of a source: its lead over the watermarks, its retention, and the size of its change tables.


def read_progress(connection: SqlServerConnection, watermarks: Iterable[Position]) -> SourceProgress:
    """Return the progress. One connection, and a statement for each distinct watermark: a pipeline mostly has one."""
    count = read_sql("count_transactions")
    with connect(connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        try:
            behind = {mark: int(session.fetch(count, (mark.value,))[0][0]) for mark in sorted(set(watermarks))}
        except (CdcNotEnabledError, SourcePermissionError):
            # The verdicts report the cause; the status only lacks these numbers.
            behind = {}
        jobs = session.fetch_sets(read_sql("read_jobs"))
        sizes = read_sizes(session)
    return SourceProgress(behind, build_jobs(jobs[0]).retention_minutes if jobs else None, sizes)
