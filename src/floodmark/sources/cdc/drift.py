"""``SqlServerDriftSource``: the details of capture instances, for schema drift.

A snapshot compares names. This module reads column ids, which show that a column was dropped and added again. It also
reads the DDL history, by instance, so that it belongs to an existing one: the rows of dropped instances would produce
the same event again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from floodmark.core.drift.ddl import DdlEntry
from floodmark.core.drift.proposal import LivingInstance
from floodmark.core.drift.risk import COUNTED_CHANGES, RowsAtRisk
from floodmark.core.errors import CdcNotEnabledError, SourcePermissionError
from floodmark.core.lsn import Lsn
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.source.scripts import bracket_table
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.sql_files import read_sql
from floodmark.sources.sqlserver.tables import Row, read_source_column, round_to_tick
from floodmark.sources.sqlserver.tsql import change_table
from floodmark.sync.ports.drift import DriftFacts, TableDetails

_CAPTURED_NAME, _CAPTURED_ID = 3, 4
_HISTORY_COMMAND, _HISTORY_LSN, _HISTORY_AT = 4, 5, 6


class SqlServerDriftSource:
    """``sync.ports.drift.DriftSource`` for SQL Server 2016 and later and Azure SQL."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        """Return the details by one batch per instance, with a constant text, and one batch for the list."""
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            sets = session.fetch_sets(read_sql("list_instances"))
            details = {}
            for instance, table in asked.items():
                found = _read_details(session, instance, table)
                if found is not None:
                    details[instance] = found
        return DriftFacts(details, tuple(_living(row) for row in (sets[0] if sets else [])))

    def read_risk(self, table: TableName, instance: str, since: Position | None) -> RowsAtRisk:
        """Return the rows at risk. It is read once per event, not at every check."""
        text = read_sql("read_risk").format(change_table=change_table(instance), limit=COUNTED_CHANGES)
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            session.limit_lock_waits()
            # No change is after the highest LSN, so none is counted.
            after = since.value if since else b"\xff" * 10
            ((table_rows, change_rows),) = session.fetch(text, (bracket_table(table), after))
        return RowsAtRisk(None if table_rows is None else int(table_rows), int(change_rows) if since else None)


def _read_details(session: SourceSession, instance: str, table: TableName) -> TableDetails | None:
    try:
        captured, history, columns = session.fetch_sets(read_sql("read_drift"), [instance, bracket_table(table)])
    except (SourcePermissionError, CdcNotEnabledError):
        # The instance was dropped meanwhile, or a right was revoked: the next check reports which.
        return None
    # A table without columns does not exist: it was renamed or dropped meanwhile, and has not lost its columns.
    return build_details(captured, history, columns) if columns else None


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
        InstanceIdentity(name, object_id, round_to_tick(created_at)),
        TableName(schema, table),
        bool(net),
        role,
        index,
        filegroup,
    )
