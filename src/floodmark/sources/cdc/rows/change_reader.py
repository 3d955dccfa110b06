"""``CdcReader``: a table of a plan, read from its change table or, for a first load, from the table itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from floodmark.core.interval import Interval
from floodmark.core.job_variables import SOURCE_VARIABLE
from floodmark.core.policies import NetSource
from floodmark.core.source.history import LogEntry
from floodmark.core.window.columns import value_columns
from floodmark.core.window.plan import TablePlan
from floodmark.sources.cdc.rows import statements
from floodmark.sources.cdc.rows.feed import instance_of
from floodmark.sources.cdc.rows.position import require_entry
from floodmark.sources.cdc.rows.server_net import require_server_net
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.rows.reader import SqlServerReader
from floodmark.sync.ports.reader import RowShape

_NO_COMMAND_ID = (
    "the change table has no __$command_id; changes of one transaction are ordered by __$seqval, which is not always "
    "the order in which they happened"
)


def open_cdc_reader(plan: TablePlan, end: LogEntry) -> CdcReader:
    """Return the reader over the connection that the environment names."""
    return CdcReader(plan, SqlServerConnection.from_json(os.environ[SOURCE_VARIABLE]), end)


@dataclass(frozen=True)
class CdcReader(SqlServerReader):
    """``sync.ports.reader.TableReader``."""

    @cached_property
    def shape(self) -> RowShape:
        table = self.plan.feed.table
        return RowShape(
            key=table.key,
            own=tuple((name, statements.OWN_TYPES[name]) for name in statements.own_columns(self.plan)),
            values=value_columns(table, self.plan.temporal),
            order=statements.order_columns(self.plan),
            position=statements.START_LSN,
            operation=statements.OPERATION,
            mask=statements.UPDATE_MASK,
            remark="" if instance_of(self.plan).has_command_id else _NO_COMMAND_ID,
        )

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        if self.plan.net is NetSource.SERVER:
            require_server_net(self.plan)
            text, first = statements.select_net_changes(self.plan), interval.from_lsn
        else:
            text, first = statements.select_changes(self.plan), interval.after_lsn
        return self.read_text(text, (first.value, interval.to_lsn.value))

    def require_end(self, session: SourceSession) -> None:
        require_entry(session, self.end, str(self.plan.source))
