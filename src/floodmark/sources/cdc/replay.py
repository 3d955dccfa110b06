"""``SqlServerReplaySource``: the source's clock, the times of its log, and the number of changes to replay."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from floodmark.core.change import Operation
from floodmark.core.interval import Interval
from floodmark.core.lsn import read_lsn
from floodmark.core.position import Position
from floodmark.core.recovery.replay_interval import LocalSpan, MappedTimes, local_span
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, connect
from floodmark.sources.sqlserver.sql_files import read_sql
from floodmark.sources.sqlserver.tsql import change_table

_COUNT_TIMEOUT_SECONDS = 600


class SqlServerReplaySource:
    """``sync.recovery.replay.ReplaySource``. Each call opens and closes one connection."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_local_time(self, at: datetime) -> LocalSpan:
        at_utc = at.astimezone(UTC).replace(tzinfo=None)
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            earliest, latest, offset = session.fetch(read_sql("read_local_time"), (_text(at_utc),))[0]
        return local_span(at_utc, LocalSpan(earliest, latest) if earliest else None, offset)

    def map_times(self, from_at: datetime, to_at: datetime) -> MappedTimes:
        with connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            found = session.fetch(read_sql("map_times"), (_text(from_at), _text(to_at)))[0]
        first, last, before, oldest_at, newest_at = found
        return MappedTimes(_lsn(first), _lsn(last), _lsn(before) is not None, oldest_at, newest_at)

    def count_changes(self, intervals: Mapping[str, Interval], limit: int = 0) -> Mapping[str, int]:
        """Return the number of changes per change table, without images before an update, which are not read."""
        counts = {}
        with connect(self._connection, query_timeout_seconds=_COUNT_TIMEOUT_SECONDS) as session:
            for instance, interval in intervals.items():
                text = (
                    f"SELECT COUNT_BIG(*) FROM (SELECT {f'TOP ({limit}) ' if limit else ''}1 AS one"  # noqa: S608
                    f" FROM {change_table(instance)} WHERE [__$start_lsn] > ? AND [__$start_lsn] <= ?"
                    f" AND [__$operation] <> {Operation.BEFORE_UPDATE.value}) AS counted"
                )
                bounds = (interval.after_lsn.value, interval.to_lsn.value)
                counts[instance] = int(session.fetch(text, bounds)[0][0])
        return counts


def _text(at: datetime) -> str:
    return at.isoformat(timespec="microseconds" if at.microsecond else "seconds")


def _lsn(value: bytes | None) -> Position | None:
    found = read_lsn(value)
    return found if isinstance(found, Position) else None
