"""The progress of a source: its lead over the watermarks, and its retention."""

from __future__ import annotations

from collections.abc import Iterable

from floodmark.core.position import Position
from floodmark.core.status.progress import SourceProgress
from floodmark.core.upkeep.retention import HOLD_MINUTES
from floodmark.core.version import Version
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, connect
from floodmark.sources.sqlserver.sql_files import read_sql

_MINUTES = {1: 1, 2: 60, 3: 1440}
"""By the unit of sys.change_tracking_databases."""


def read_progress(connection: SqlServerConnection, watermarks: Iterable[Position]) -> SourceProgress:
    """Return the progress. Each transaction that changed a tracked table has one version.

    Without AUTO_CLEANUP changes are kept without end. A source may be quiet for longer than its retention: what counts
    is the first change after a watermark, and not the age of the watermark.
    """
    marks = {mark.number: mark for mark in watermarks if isinstance(mark, Version)}
    versions = b"".join(number.to_bytes(8) for number in marks)
    with connect(connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        [[(current, cleans_up, *retention)], unread] = session.fetch_sets(
            read_sql("read_tracking_retention"), (versions,)
        )
    minutes = minutes_of(*retention)
    return SourceProgress(
        {mark: max(current - number, 0) for number, mark in marks.items()} if current is not None else {},
        minutes if cleans_up or minutes is None else HOLD_MINUTES,
        first_unread_at={marks[version]: at for version, at in unread if at is not None},
    )


def minutes_of(period: int | None, unit: int | None) -> int | None:
    """Return a retention in minutes, None without one. unit: of sys.change_tracking_databases."""
    return None if period is None or unit is None else period * _MINUTES[unit]
