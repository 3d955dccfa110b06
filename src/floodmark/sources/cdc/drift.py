"""``SqlServerDriftSource``: the closer look at capture instances, for schema drift.

A snapshot compares names; this looks at column ids, so that a column that was dropped and added again is told from one
that stayed, and at the DDL history, which is asked for by instance and so belongs to a living one (rows of instances
that are gone would make the same event appear again and again).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from floodmark.core.drift.ddl import DdlEntry
from floodmark.core.drift.proposal import LivingInstance
from floodmark.core.drift.risk import COUNTED_CHANGES, RowsAtRisk
from floodmark.core.errors import CdcNotEnabledError, SourcePermissionError
from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import InstanceIdentity
from floodmark.sources.cdc.catalog import Row, read_source_column
from floodmark.sources.cdc.sql_files import read_sql
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.tsql import bracket_table, change_table
from floodmark.sync.ports.drift import DriftFacts, TableDetails

_CAPTURED_NAME, _CAPTURED_ID = 3, 4
_HISTORY_COMMAND, _HISTORY_LSN, _HISTORY_AT = 4, 5, 6


class SqlServerDriftSource:
    """``sync.drift_ports.DriftSource`` for SQL Server 2016 and later and Azure SQL."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        """One batch for each instance, with one constant text, and one for the list."""
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            sets = session.fetch_sets(read_sql("list_instances"))
            details = {}
            for instance, table in asked.items():
                found = _read_details(session, instance, table)
                if found is not None:
                    details[instance] = found
        return DriftFacts(details, tuple(_living(row) for row in (sets[0] if sets else [])))

    def read_risk(self, table: TableName, instance: str, since: Lsn | None) -> RowsAtRisk:
        """No statement of every look: it is asked once an event."""
        text = read_sql("read_risk").format(change_table=change_table(instance), limit=COUNTED_CHANGES)
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            session.limit_lock_waits()
            # After the last of all LSNs nothing is counted.
            after = since.value if since else b"\xff" * 10
            ((table_rows, change_rows),) = session.fetch(text, (bracket_table(table), after))
        return RowsAtRisk(None if table_rows is None else int(table_rows), int(change_rows) if since else None)


def _read_details(session: SourceSession, instance: str, table: TableName) -> TableDetails | None:
    try:
        captured, history, columns = session.fetch_sets(read_sql("read_drift"), [instance, bracket_table(table)])
    except (SourcePermissionError, CdcNotEnabledError):
        # The instance went away since it was seen, or a right did: the next look says which.
        return None
    # Without a column there is no table: it was renamed or dropped since, and has not lost its columns.
    return build_details(captured, history, columns) if columns else None


def build_details(captured: Sequence[Row], history: Sequence[Row], columns: Sequence[Row]) -> TableDetails:
    """From the result sets of ``read_drift.sql``."""
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
    """``row``: as sys.sp_cdc_help_change_data_capture returns it."""
    (schema, table, name, object_id, _, _, _, net, _, role, index, filegroup, created_at, _, _) = row
    return LivingInstance(
        InstanceIdentity(name, object_id, created_at), TableName(schema, table), bool(net), role, index, filegroup
    )
