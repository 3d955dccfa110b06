"""``SqlServerRetention``: reads and controls CDC's cleanup through the server's own procedures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from floodmark.core.lsn import read_lsn
from floodmark.core.position import Position
from floodmark.core.upkeep.retention import RetentionStatus
from floodmark.sources.cdc.jobs import change_job, read_jobs
from floodmark.sources.cdc.sizes import read_sizes
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.sql_files import read_sql

_CLEANUP = "cleanup"
_CLEANUP_TIMEOUT_SECONDS = 1800


class SqlServerRetention:
    """``sync.upkeep.retention.RetentionControl``. Each call opens and closes one connection."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_retention(self) -> RetentionStatus:
        with self._connect() as session:
            newest, jobs = session.fetch_sets(read_sql("read_retention"))
            sizes = read_sizes(session)
        job = read_jobs(jobs).get(_CLEANUP)
        return RetentionStatus(
            retention_minutes=job["retention"] if job else None,
            threshold=job["threshold"] if job else None,
            newest_entry_at=newest[0][0],
            sizes=sizes,
            is_replica=bool(newest[0][1]),
        )

    def read_time_at(self, position: Position) -> datetime | None:
        with self._connect() as session:
            found: datetime | None = session.fetch(read_sql("read_time_at"), (position.value,))[0][0]
        return found

    def change_cleanup(self, changes: Mapping[str, int]) -> None:
        with self._connect() as session:
            change_job(session, _CLEANUP, changes)

    def read_low_water_mark(self, watermark: Position, margin_seconds: float) -> Position | None:
        parameters = (watermark.value, int(margin_seconds), watermark.value)
        with self._connect() as session:
            found = read_lsn(session.fetch(read_sql("read_low_water_mark"), parameters)[0][0])
        return found if isinstance(found, Position) else None

    def clean_instance(self, instance: str, low_water_mark: Position, threshold: int) -> bool:
        with self._connect(_CLEANUP_TIMEOUT_SECONDS) as session:
            parameters = (instance, low_water_mark.value, threshold)
            sets = session.fetch_sets(read_sql("cleanup_change_table"), parameters)
        return not sets[-1][0][0]

    def _connect(self, timeout_seconds: int = CONTROL_TIMEOUT_SECONDS) -> SourceSession:
        return connect(self._connection, query_timeout_seconds=timeout_seconds)
