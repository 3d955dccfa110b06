"""The progress of a source: its lead over the watermarks, its retention, and the size of its change tables."""

from __future__ import annotations

from collections.abc import Iterable

from floodmark.core.errors import CdcNotEnabledError, SourcePermissionError
from floodmark.core.position import Position
from floodmark.core.status.progress import SourceProgress
from floodmark.sources.cdc.facts import build_jobs
from floodmark.sources.cdc.sizes import read_sizes
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, connect
from floodmark.sources.sqlserver.sql_files import read_sql


def read_progress(connection: SqlServerConnection, watermarks: Iterable[Position]) -> SourceProgress:
    """Return the progress. One connection, and a statement for each distinct watermark: a pipeline mostly has one."""
    count = read_sql("count_transactions")
    with connect(connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        try:
            behind = {mark: int(session.fetch(count, (mark.value,))[0][0]) for mark in sorted(set(watermarks))}
        except (CdcNotEnabledError, SourcePermissionError):
            # The verdicts report the cause; the status only lacks these numbers.
            behind = {}
        jobs = session.fetch_sets(read_sql("read_jobs"))
        sizes = read_sizes(session)
    return SourceProgress(behind, build_jobs(jobs[0]).retention_minutes if jobs else None, sizes)
