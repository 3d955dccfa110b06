"""``SqlServerInstances``: capture instances made and dropped, as somebody has approved."""

from __future__ import annotations

from floodmark.core.schema import TableName
from floodmark.sqlfiles import read_sql
from floodmark.sqlserver.connection import SqlServerConnection
from floodmark.sqlserver.driver import connect

_ENABLE_TIMEOUT_SECONDS = 600
"""Both wait for transactions that write to the table."""


class SqlServerInstances:
    """``sync.switch_ports.InstanceControl``."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def make_instance(self, enabling: str) -> None:
        with connect(self._connection, query_timeout_seconds=_ENABLE_TIMEOUT_SECONDS) as session:
            session.fetch_sets(enabling)

    def drop_instance(self, table: TableName, instance: str) -> None:
        with connect(self._connection, query_timeout_seconds=_ENABLE_TIMEOUT_SECONDS) as session:
            session.fetch_sets(read_sql("source", "drop_instance"), (table.schema, table.name, instance))
