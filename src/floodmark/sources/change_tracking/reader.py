"""``TrackingReader``: a table of a plan, read by CHANGETABLE or, for a first load, from the table itself.

CHANGETABLE has the newest state of each key that changed after a version, and no older one. So rows are read that are
newer than the window's end. Each has the version of its own change, so that a later window does not undo it; the
watermark moves to the end of the window, and the next window reads them again (docs/reference/change_tracking.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from floodmark.core.interval import Interval
from floodmark.core.job_variables import SOURCE_VARIABLE
from floodmark.core.source.history import LogEntry
from floodmark.core.window.columns import value_columns
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.sources.change_tracking import statements
from floodmark.sources.change_tracking.position import number_of, require_version
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.rows.reader import SqlServerReader
from floodmark.sync.ports.reader import RowShape


def open_tracking_reader(plan: TablePlan, end: LogEntry) -> TrackingReader:
    """Return the reader over the connection that the environment names."""
    return TrackingReader(plan, SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE]), end)


@dataclass(frozen=True)
class TrackingReader(SqlServerReader):
    """``sync.ports.reader.TableReader``."""

    @cached_property
    def shape(self) -> RowShape:
        table = self.plan.feed.table
        is_first = self.plan.kind is LoadKind.FIRST_LOAD
        return RowShape(
            key=table.key,
            own=() if is_first else statements.OWN_COLUMNS,
            values=value_columns(table, self.plan.temporal),
            order=(),
            position=statements.POSITION,
            operation=statements.OPERATION,
            mask=statements.MASK,
        )

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        return self.read_text(statements.select_changes(self.plan), (number_of(interval.after_lsn),))

    def read_at(self, session: SourceSession, interval: Interval) -> Iterator[pa.RecordBatch]:
        """Yield the changes as a session sees them that has begun a transaction."""
        return self.read_over(session, statements.select_changes(self.plan), (number_of(interval.after_lsn),))

    def require_end(self, session: SourceSession) -> None:
        require_version(session, self.end, str(self.plan.source))
