"""``SqlServerInstances``: creates and drops capture instances, as the operator has approved."""

from __future__ import annotations

from floodmark.core.schema import TableName
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import connect
from floodmark.sources.sqlserver.sql_files import read_sql

_ENABLE_TIMEOUT_SECONDS = 600
LOCK_WAIT_SECONDS = 15
"""The lock timeout. Both procedures need an exclusive schema lock on the table (Sch-M): they wait for all sessions that
use it, and all later readers and writers wait behind them."""


class SqlServerInstances:
    """``sync.ports.switch.InstanceControl``."""

    def __init__(self, connection: SqlServerConnection, lock_wait_seconds: int = LOCK_WAIT_SECONDS) -> None:
        self._connection = connection
        self._lock_wait_seconds = lock_wait_seconds

    def make_instance(self, enabling: str) -> None:
        self._run(enabling)

    def drop_instance(self, table: TableName, instance: str) -> None:
        self._run(read_sql("drop_instance"), table.schema, table.name, instance)

    def _run(self, text: str, *parameters: object) -> None:
        with connect(self._connection, query_timeout_seconds=_ENABLE_TIMEOUT_SECONDS) as session:
            session.limit_lock_waits(self._lock_wait_seconds)
            session.fetch_sets(text, parameters)
