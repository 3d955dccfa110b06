"""``EventReader``: a table of a plan, read from the event stream or, for a first load, from the table itself.

``EventPassReader`` reads several tables in one pass over the stream.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from floodmark.core.errors import FloodmarkError
from floodmark.core.interval import Interval
from floodmark.core.job_variables import SOURCE_VARIABLE
from floodmark.core.source.history import LogEntry
from floodmark.core.window.columns import value_columns
from floodmark.core.window.members import MemberRead
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.sources.event_stream.connection import StreamConnection
from floodmark.sources.event_stream.divided_pass import unite_reads
from floodmark.sources.event_stream.pass_state import PassState
from floodmark.sources.event_stream.source import require_primary
from floodmark.sources.event_stream.stream_pass import Found, StreamPass
from floodmark.sources.event_stream.table_rows import MASK, OPERATION, OWN_COLUMNS, POSITION
from floodmark.sources.event_stream.transport import EventStream
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.rows.reader import SqlServerReader
from floodmark.sync.ports.reader import RowShape


def open_event_reader(plan: TablePlan, end: LogEntry) -> EventReader:
    """Return the reader over the connection that the environment names."""
    connection = _connection()
    return EventReader(plan, connection.database, end, connection.open_stream())


def open_event_pass(tables: Mapping[int, TablePlan]) -> EventPassReader:
    """Return the reader of several tables over the connection that the environment names."""
    connection = _connection()
    return EventPassReader(tables, connection.database.database, connection.open_stream())


def _connection() -> StreamConnection:
    return StreamConnection.from_json(os.environ[SOURCE_VARIABLE])


@dataclass(frozen=True)
class EventReader(SqlServerReader):
    """``sync.ports.reader.TableReader``."""

    stream: EventStream

    @cached_property
    def shape(self) -> RowShape:
        table = self.plan.feed.table
        is_first = self.plan.kind is LoadKind.FIRST_LOAD
        return RowShape(
            key=table.key,
            own=() if is_first else OWN_COLUMNS,
            # The server may send no old value of a LOB: NULL in a delete is not its last value.
            values=tuple(
                replace(column, keeps_value_on_delete=False) for column in value_columns(table, self.plan.temporal)
            ),
            order=(POSITION, OPERATION),
            position=POSITION,
            operation=OPERATION,
            mask=MASK,
        )

    def read(self, interval: Interval) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the table between the marks and the ends of the plan."""
        for _, found in StreamPass(self.source.database, self.stream, {0: self.plan}).run():
            if isinstance(found, FloodmarkError):
                raise found
            yield found

    def require_end(self, session: SourceSession) -> None:
        """Require the primary, which has every change that was streamed. A newer one comes with a later window."""
        require_primary(session, str(self.plan.source))


@dataclass(frozen=True)
class EventPassReader:
    """``sync.ports.reader.SharedReader``."""

    tables: Mapping[int, TablePlan]
    database: str
    stream: EventStream
    only: frozenset[int] | None = None
    """The partitions to read; None for all."""

    def count(self) -> int:
        """Return the number of messages; those of a new partition from its beginning on."""
        return sum(self._messages().values())

    def read(self) -> Iterator[Found]:
        return StreamPass(self.database, self.stream, self.tables, self.only).run()

    def split(self, most: int) -> Sequence[EventPassReader]:
        """Return readers of partitions: the largest one goes to the reader with the least, and so on."""
        messages = self._messages()
        filled = sum(count > 0 for count in messages.values())
        groups: list[list[int]] = [[] for _ in range(max(min(most, filled), 1))]
        for number in sorted(messages, key=lambda each: (-messages[each], each)):
            min(groups, key=lambda group: sum(messages[each] for each in group)).append(number)
        return [replace(self, only=frozenset(group)) for group in groups] if groups[1:] else [self]

    def unite(self, reads: Mapping[int, Sequence[MemberRead]]) -> Mapping[int, Sequence[MemberRead]] | None:
        """Return the reads with what the partitions show together.

        None where an event may have segments in several of them, or where segments have come too late: the pass that
        has all of them decides.
        """
        return unite_reads(reads)

    def _messages(self) -> Mapping[int, int]:
        """Return the most messages of each partition that a table has not read."""
        found: dict[int, int] = {}
        for number, plan in self.tables.items():
            state = PassState.of(number, plan, self.stream.topic, self.only)
            for partition, end in state.ends.items():
                found[partition] = max(found.get(partition, 0), end - state.begins.get(partition, 0))
        return found
