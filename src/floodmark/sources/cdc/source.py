"""``SqlServerSource``: the control queries of a run. The rows themselves are read by ``floodmark.spark``."""

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
    """``sync.ports.Source`` for SQL Server 2016 and later and Azure SQL. Each call makes and ends one connection."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_snapshot(
        self, tables: Sequence[TableName], instances: Mapping[TableName, str] | None = None,
        positions: Collection[Lsn] = (),
    ) -> SourceSnapshot:  # fmt: skip
        """Two statements; their texts depend on the set of capture instances only.

        The second is sent after the first has answered: what it sees of the change tables is not older than max_lsn. It
        reads the low ends once more, after the newest changes: what is missing there because of a cleanup that came
        meanwhile lies below them.
        """
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            asked = b"".join(position.value for position in positions)
            sets = session.fetch_sets(read_sql("read_snapshot"), (asked,))
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
    catalog: Catalog, table: TableName, pinned: str | None, found: FoundInstance | None,
    last_changes: Mapping[str, Lsn | LsnAbsence],
) -> TableSnapshot:  # fmt: skip
    known = catalog.find_table(table)
    if found is None:
        # The procedure leaves out what the login may not see: a tracked table without an instance lacks a right,
        # unless another instance of it is visible.
        others = catalog.list_instances(known) if known is not None else ()
        permitted = known is None or not known.is_tracked or bool(others)
        return TableSnapshot(
            table, known is not None, None, LsnAbsence.NULL, permitted, searched_for=pinned, others=others,
            server_name=known.name if known else None,
        )  # fmt: skip
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
    """As the second statement saw it; when a low end that was raised meanwhile was committed, nobody asked."""
    if found is None or min_lsns.get(found.name, found.min_lsn) == found.min_lsn:
        return found
    return replace(found, min_lsn=min_lsns[found.name], min_lsn_at=None)


def _read_ends(
    session: SourceSession, found: Sequence[FoundInstance]
) -> tuple[dict[str, Lsn | LsnAbsence], dict[str, Lsn | LsnAbsence]]:
    """By instance: the highest ``__$start_lsn`` of its change table, one seek each in the clustered index, and where it
    begins."""
    names = sorted({instance.name for instance in found})
    branches = [
        f"SELECT {number} AS number, MAX([__$start_lsn]) AS last_lsn FROM {change_table(name)}"  # noqa: S608  (quoted)
        for number, name in enumerate(names)
    ]
    # What a text with parameters sets ends with it, so the limit is set anew.
    text = "SET LOCK_TIMEOUT 10000; " + " UNION ALL ".join(branches) + ";\n" + read_sql("read_min_lsns")
    last_changes, min_lsns = session.fetch_sets(text)
    return (
        {names[number]: read_lsn(value) for number, value in last_changes},
        {name: read_lsn(value) for name, value in min_lsns},
    )
