"""``SqlServerSource``: the control queries of a run. ``change_reader`` reads the rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from floodmark.core.lsn import Lsn, LsnAbsence, read_lsn
from floodmark.core.schema import TableName
from floodmark.core.source.editions import AZURE_SQL_DATABASE
from floodmark.core.source.snapshot import SourceSnapshot, TableSnapshot
from floodmark.sources.cdc.catalog import Catalog, FoundInstance, build_catalog
from floodmark.sources.cdc.jobs import clock_ahead_seconds
from floodmark.sources.cdc.sql_files import read_sql
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.tsql import change_table

_SETS_WITHOUT_CDC = 2
_SETS_WITHOUT_CATALOG = 4


class SqlServerSource:
    """``sync.ports.source.Source`` for SQL Server 2016 and later and Azure SQL, with one connection per call."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        instances: Mapping[TableName, str] | None = None,
        positions: Collection[Lsn] = (),
    ) -> SourceSnapshot:
        """Return a snapshot, read by two statements whose texts depend only on the set of capture instances.

        The second statement is sent when the first has returned: its view of the change tables is not older than
        max_lsn. It reads the low ends again, after the newest changes: changes that a cleanup removed meanwhile are
        below these low ends.
        """
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            requested = b"".join(position.value for position in positions)
            sets = session.fetch_sets(read_sql("read_snapshot"), (requested,))
            catalog = build_catalog(sets[1], *sets[_SETS_WITHOUT_CATALOG:])
            found = {table: _find(catalog, table, (instances or {}).get(table)) for table in tables}
            readable = [instance for instance in found.values() if instance and instance.readable]
            last_changes, min_lsns = _read_ends(session, readable) if readable else ({}, {})
        database, enabled, taken_at, running, edition, ahead, is_replica = sets[0][0]
        clock_ahead = clock_ahead_seconds(ahead)
        max_lsn, max_lsn_at = sets[_SETS_WITHOUT_CDC][0] if enabled else (None, None)
        entries = sets[_SETS_WITHOUT_CDC + 1] if enabled else []
        return SourceSnapshot(
            database=database,
            cdc_enabled=bool(enabled),
            max_lsn=read_lsn(max_lsn),
            max_lsn_at=max_lsn_at,
            taken_at=taken_at,
            seconds_behind=(max((taken_at - max_lsn_at).total_seconds() - clock_ahead, 0.0) if max_lsn_at else None),
            capture_running=None if running is None else bool(running),
            tables=tuple(
                _table_snapshot(
                    catalog, table, (instances or {}).get(table), _with_low_end(found[table], min_lsns), last_changes
                )
                for table in tables
            ),
            entries={Lsn(bytes(position)): committed_at for position, committed_at in entries},
            has_agent=edition not in AZURE_SQL_DATABASE,
            clock_ahead_seconds=clock_ahead,
            clock_back_seconds=clock_ahead_seconds(-(ahead or 0)),
            is_replica=bool(is_replica),
        )


def _find(catalog: Catalog, table: TableName, pinned: str | None) -> FoundInstance | None:
    known = catalog.find_table(table)
    return catalog.find_instance(known, pinned) if known else None


def _table_snapshot(
    catalog: Catalog,
    table: TableName,
    pinned: str | None,
    found: FoundInstance | None,
    last_changes: Mapping[str, Lsn | LsnAbsence],
) -> TableSnapshot:
    known = catalog.find_table(table)
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
        last_change_lsn=last_changes.get(found.name),
        max_column_id=known.max_column_id if known else 0,
        min_lsn_at=found.min_lsn_at,
        searched_for=pinned,
        server_name=known.name if known else None,
    )


def _with_low_end(found: FoundInstance | None, min_lsns: Mapping[str, Lsn | LsnAbsence]) -> FoundInstance | None:
    """Return the instance with the low end of the second statement. The commit time of a raised low end is unknown."""
    if found is None or min_lsns.get(found.name, found.min_lsn) == found.min_lsn:
        return found
    return replace(found, min_lsn=min_lsns[found.name], min_lsn_at=None)


def _read_ends(
    session: SourceSession, found: Sequence[FoundInstance]
) -> tuple[dict[str, Lsn | LsnAbsence], dict[str, Lsn | LsnAbsence]]:
    """Return the newest change and the low end of each instance, by its name.

    The newest change is one seek in the clustered index of the change table.
    """
    names = sorted({instance.name for instance in found})
    branches = [
        f"SELECT {number} AS number, MAX([__$start_lsn]) AS last_lsn FROM {change_table(name)}"  # noqa: S608  (quoted)
        for number, name in enumerate(names)
    ]
    # A setting made in a batch with parameters ends with that batch, so the limit is set again.
    text = "SET LOCK_TIMEOUT 10000; " + " UNION ALL ".join(branches) + ";\n" + read_sql("read_min_lsns")
    last_changes, min_lsns = session.fetch_sets(text)
    return (
        {names[number]: read_lsn(value) for number, value in last_changes},
        {name: read_lsn(value) for name, value in min_lsns},
    )
