"""``TrackingSource``: the control queries of a run on a database with change tracking."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from floodmark.core.lsn import LsnAbsence
from floodmark.core.position import Position
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.source.feed import InstanceIdentity, MemberMark
from floodmark.core.source.snapshot import CaptureInstance, SourceSnapshot, TableSnapshot
from floodmark.core.version import Version
from floodmark.sources.change_tracking.identity import feed_name
from floodmark.sources.change_tracking.words import TRACKING_WORDS
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.identity import build_identity
from floodmark.sources.sqlserver.sql_files import read_sql
from floodmark.sources.sqlserver.tables import (
    FoundTable,
    Row,
    build_tables,
    encode_names,
    find_table,
    grouped,
    read_source_column,
    round_to_tick,
)


class TrackingSource:
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
        """Return a snapshot, read by three statements with constant texts; by the first alone where no table is given.

        The current version is read before the newest changes, so that a table which counts as quiet is. A table has one
        change tracking, and no members: ``instances`` and ``marks`` are not used.
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
        newest = Version.of(current) if current is not None else LsnAbsence.NULL
        return SourceSnapshot(
            database=database,
            cdc_enabled=current is not None,
            max_lsn=newest,
            max_lsn_at=entries.get(newest) if isinstance(newest, Version) else None,
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
            return TableSnapshot(name, False, None, LsnAbsence.NULL)
        if found.object_id not in self._tracked:
            return TableSnapshot(name, True, None, LsnAbsence.NULL, server_name=found.name)
        begin, side, is_readable, is_end_known, last, min_valid, created_at = self._tracked[found.object_id]
        if not is_readable or min_valid is None:
            return TableSnapshot(name, True, None, LsnAbsence.NULL, permitted=False, server_name=found.name)
        return TableSnapshot(
            table=name,
            exists=True,
            instance=CaptureInstance(
                identity=InstanceIdentity(
                    feed_name(found.name, begin), found.object_id, round_to_tick(created_at), side or 0
                ),
                table=SourceTable(found.name, self._columns_of(found), self._key_of(found)),
                start_lsn=Version.of(begin),
                supports_net_changes=True,
                has_command_id=False,
                delivers_net=True,
            ),
            # The lowest version whose changes are certainly there.
            min_lsn=Version.of(min_valid).next(),
            last_change_lsn=_newest(last) if is_end_known else None,
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


def _newest(version: int | None) -> Version | LsnAbsence:
    return LsnAbsence.NULL if version is None else Version.of(version)
