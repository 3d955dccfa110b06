"""``TrackingCutReader``: all tables of a window over one connection, in one SNAPSHOT transaction.

Every statement of the transaction sees the same moment, so the current version that is read first is the end of all
changes that are read after it. Parallel connections would see different moments.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from floodmark.core.errors import FloodmarkBugError, InstanceReplacedError, WindowExpiredError
from floodmark.core.job_variables import SOURCE_VARIABLE
from floodmark.core.source.history import LogEntry
from floodmark.core.window.plan import TablePlan, WindowPlan
from floodmark.sources.change_tracking import statements
from floodmark.sources.change_tracking.identity import feed_name
from floodmark.sources.change_tracking.position import number_of, require_version
from floodmark.sources.change_tracking.reader import TrackingReader
from floodmark.sources.change_tracking.words import TRACKING_WORDS
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import SourceSession, connect
from floodmark.sync.ports.reader import Cut

_LOG = logging.getLogger(__name__)
_ON = 1
_NOT_ALLOWED = (
    "Snapshot isolation is not allowed in database %s: the tables of the window are read one after the other, and may "
    "differ from each other by what is committed meanwhile. Allow it with ALTER DATABASE ... SET "
    "ALLOW_SNAPSHOT_ISOLATION ON."
)


@dataclass(frozen=True)
class TrackingCutReader:
    """``sync.ports.reader.CutReader``."""

    pipeline: str
    end: LogEntry
    """The planned end of the window."""
    source: SqlServerConnection

    @contextmanager
    def open(self) -> Iterator[Cut | None]:
        with connect(self.source, subject=self.pipeline) as session:
            session.limit_lock_waits()
            if session.fetch(statements.select_snapshot_state())[0][0] != _ON:
                _LOG.warning(_NOT_ALLOWED, self.source.database)
                yield None
                return
            session.fetch_sets("SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRANSACTION")
            # Closing the session ends the transaction, which has changed nothing.
            yield _TrackingCut(session, self.source, require_version(session, self.end, self.pipeline))


@dataclass(frozen=True)
class _TrackingCut:
    """``sync.ports.reader.Cut``."""

    session: SourceSession
    source: SqlServerConnection
    end: LogEntry

    def read(self, table: TablePlan) -> Iterator[pa.RecordBatch]:
        if table.interval is None:
            raise FloodmarkBugError(str(table.source), "a first load is not read at one moment.")
        self._require_complete(table)
        yield from TrackingReader(table, self.source, self.end).read_at(self.session, table.interval)

    def _require_complete(self, table: TablePlan) -> None:
        """Raise an error unless the changes since the watermark are there.

        Metadata may be newer than the transaction: what was valid later was valid at its moment.
        """
        assert table.interval is not None  # noqa: S101  (see ``read``)
        subject, identity = str(table.source), table.feed.identity
        found = self.session.fetch(statements.select_tracking(), (identity.object_id,))
        # A table that is not tracked has no such begin.
        begin, min_valid, side = found[0] if found else (-1, None, None)
        present = replace(identity, name=feed_name(table.feed.table.name, begin), store_id=side or 0)
        if present.is_successor(identity):
            raise InstanceReplacedError(subject, TRACKING_WORDS.replaced(identity, identity))
        if min_valid is None or min_valid > number_of(table.interval.after_lsn):
            said = TRACKING_WORDS.expired(table.interval.after_lsn, str(min_valid))
            raise WindowExpiredError(subject, said.cause)


def open_tracking_cut(plan: WindowPlan) -> TrackingCutReader:
    """Return the reader of a window over the connection that the environment names."""
    return TrackingCutReader(plan.pipeline, plan.end, SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE]))
