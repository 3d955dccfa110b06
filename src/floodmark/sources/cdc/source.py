"""``SqlServerSource``: the control queries of a run. ``change_reader`` reads the rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from floodmark.core.lsn import Lsn, LsnAbsence, read_lsn
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.editions import AZURE_SQL_DATABASE
from floodmark.core.source.feed import MemberMark
from floodmark.core.source.snapshot import SourceSnapshot, TableSnapshot
from floodmark.sources.cdc.catalog import Catalog, build_catalog
from floodmark.sources.cdc.jobs import clock_ahead_seconds
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.identity import build_identity
from floodmark.sources.sqlserver.sql_files import read_sql
from floodmark.sources.sqlserver.tables import Row, encode_names, find_table

_LOG_POSITION, _ENTRIES, _INSTANCES = 1, 2, 3
"""The places of the result sets of ``read_snapshot.sql``."""
_INSTANCE_TABLE, _CHANGE_TABLE_ID = slice(0, 2), 3
"""The places of columns of sys.sp_cdc_help_change_data_capture."""


class SqlServerSource:
    """``sync.ports.source.Source`` for SQL Server 2016 and later and Azure SQL, with one connection per call."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        instances: Mapping[TableName, str] | None = None,
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
            max_lsn=read_lsn(max_lsn),
            max_lsn_at=max_lsn_at,
            taken_at=taken_at,
            seconds_behind=(max((taken_at - max_lsn_at).total_seconds() - clock_ahead, 0.0) if max_lsn_at else None),
            capture_running=None if running is None else bool(running),
            tables=tuple(_table_snapshot(catalog, table, (instances or {}).get(table)) for table in tables),
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
            LsnAbsence.NULL,
            permitted,
            searched_for=pinned,
            others=others,
            server_name=known.name if known else None,
        )
    return TableSnapshot(
        table=table,
        exists=True,
        instance=found.instance,
        min_lsn=found.min_lsn,
        permitted=found.readable,
        last_change_lsn=found.last_change_lsn,
        max_column_id=known.max_column_id if known else 0,
        min_lsn_at=found.min_lsn_at,
        searched_for=pinned,
        wider=catalog.find_wider(found),
        server_name=known.name if known else None,
        masked=known.masked if known else (),
        filters=known.filters if known else (),
    )
