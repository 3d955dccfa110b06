"""``EventStreamSource``: the control queries of a run on a database whose changes are streamed as events.

The database shows the tables with their columns; the stream shows how far each partition goes. Positions of windows are
moments, as those of a fleet (ADR 65). Where a table was read to is in its marks, one for each partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from floodmark.core.errors import ConfigError
from floodmark.core.lsn import LsnAbsence
from floodmark.core.position import Position
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.source.feed import InstanceIdentity, MemberMark
from floodmark.core.source.snapshot import CaptureInstance, FeedFault, SourceSnapshot, TableSnapshot, Verdict
from floodmark.core.version import Version
from floodmark.sources.event_stream.connection import StreamConnection
from floodmark.sources.event_stream.epochs import Epoch, are_marked, epochs_of_load, missed_epoch
from floodmark.sources.event_stream.marks import LoadedCommit, PartitionMark, oldest
from floodmark.sources.event_stream.options import WHOLE, StreamOptions, read_options
from floodmark.sources.event_stream.pass_state import SEGMENTS_WITHIN
from floodmark.sources.event_stream.positions import LOWEST, end_of_commit
from floodmark.sources.event_stream.tail import Tail, read_tail
from floodmark.sources.event_stream.transport import PartitionEnds
from floodmark.sources.event_stream.words import STREAM_WORDS
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.identity import build_identity
from floodmark.sources.sqlserver.sql_files import read_sql
from floodmark.sources.sqlserver.tables import (
    FoundTable,
    Row,
    build_tables,
    encode_names,
    find_table,
    grouped,
    read_source_column,
)

_BEGINNING = datetime(1970, 1, 1)
_NEVER_STREAMED = frozenset(
    {
        "geography",
        "geometry",
        "hierarchyid",
        "image",
        "json",
        "ntext",
        "rowversion",
        "sql_variant",
        "text",
        "timestamp",
        "vector",
        "xml",
    }
)
"""The types of columns that the server leaves out of events (docs/reference/event_stream.md, "Columns")."""
NOT_IN_SIGHT = FeedFault(
    Verdict.NOT_PLANNABLE,
    "the newest event of the database is not in sight: the messages at the end of the stream are of other databases."
    " Rows of a load would have no position that is newer than events that come late.",
    "Change a row of a streamed table, which a heartbeat does by itself, or give the database a topic of its own.",
)


class EventStreamSource:
    """``sync.ports.source.Source``, with one connection to the database per call."""

    def __init__(self, connection: StreamConnection) -> None:
        self._connection = connection

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        instances: Mapping[TableName, str] | None = None,
        positions: Collection[Position] = (),
        marks: Mapping[TableName, Sequence[MemberMark]] | None = None,
        whole: Collection[TableName] = (),
    ) -> SourceSnapshot:
        """Return a snapshot. A table has one feed: ``instances`` is not used.

        The end of the stream is read where a table may be loaded as a whole: it is in ``whole``, has no marks, or a
        fault.
        """
        stream = self._connection.open_stream()
        # Before the tables are read: an event beyond these ends is never older than the rows of a first load.
        ends = stream.read_ends()
        now = datetime.now(UTC)
        with connect(self._connection.database, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            [(database, taken_at, *names)] = session.fetch(read_sql("read_streamed_database"))
            require_primary(session, f"database {database}")
            catalog = _read_tables(session, tables)
        compared = {name: _Marks.of((marks or {}).get(name, ()), ends, now, database) for name in tables}
        every = [epoch for each in compared.values() for epoch in each.epochs]
        for each in compared.values():
            each.compare(every)
        is_loading = marks is not None and any(name not in marks or compared[name].fault for name in tables)
        tail = read_tail(stream, ends, database) if is_loading or whole else None
        is_marked = are_marked(every)
        begins = {
            name: _Begin.of(catalog.spelling_of(name), ends, compared[name], tail, database, is_marked=is_marked)
            for name in tables
        }
        return SourceSnapshot(
            database=database,
            cdc_enabled=True,
            max_lsn=Version.of_moment(now, positions),
            max_lsn_at=taken_at,
            taken_at=taken_at,
            seconds_behind=None,
            capture_running=None,
            tables=tuple(catalog.snapshot_of(name, begins[name], compared[name]) for name in tables),
            has_agent=False,
            identity=build_identity(database, *names),
            is_synchronous=True,
            words=STREAM_WORDS,
        )


def require_primary(session: SourceSession, subject: str) -> None:
    """Raise ConfigError for a session with a readable secondary.

    It may lack changes that the stream has already. A load counts them as read, so they would never come.
    """
    [(updateability,)] = session.fetch("SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), N'Updateability') AS nvarchar(128))")
    if updateability == "READ_ONLY":
        raise ConfigError(
            subject,
            "the connection reads a copy of the database that cannot be written, as a readable secondary. It may lack"
            " changes that are in the stream already.",
            "Let the connection lead to the primary: without application_intent ReadOnly, to another host.",
        )


class _Marks:
    """The marks of a table, compared with what the partitions have."""

    def __init__(self, fault: FeedFault | None, epochs: Sequence[Epoch], *, is_read: bool, is_quiet: bool) -> None:
        self.fault = fault
        self.epochs = epochs
        self.is_read = is_read
        self.is_quiet = is_quiet
        self.missed: Epoch | None = None

    @classmethod
    def of(cls, found: Sequence[MemberMark], ends: Mapping[int, PartitionEnds], now: datetime, database: str) -> _Marks:
        marks = {int(each.member): PartitionMark.parse(each.mark) for each in found if each.mark}
        met_at = oldest(list(marks.values()))
        waits_too_long = met_at is not None and now - met_at > SEGMENTS_WITHIN
        is_quiet = not waits_too_long and marks.keys() == ends.keys()
        is_quiet = is_quiet and all(mark.next == ends[number].high for number, mark in marks.items())
        epochs = [mark.epoch for mark in marks.values() if mark.epoch]
        fault = next(find_faults(marks, ends, database), None)
        return cls(fault, epochs, is_read=bool(marks), is_quiet=bool(marks) and is_quiet)

    def compare(self, every: Sequence[Epoch]) -> None:
        """Compare the epochs with those of all tables."""
        self.missed = missed_epoch(self.epochs, every)
        if self.missed is not None and self.is_read and self.fault is None:
            self.fault = missed_fault(self.missed)


@dataclass(frozen=True, slots=True)
class _Begin:
    """Where a table goes on after a window, or after a load of the whole table."""

    ends: tuple[MemberMark, ...]
    rows_at: bytes | None
    """The position that all rows have at least that are read from now on (ADR 65). It is that of the newest commit at
    the end of the stream: it was committed before it was streamed."""
    fault: FeedFault | None
    """Why this position is not known."""

    @classmethod
    def of(
        cls,
        name: TableName,
        ends: Mapping[int, PartitionEnds],
        marks: _Marks,
        tail: Tail | None,
        database: str,
        *,
        is_marked: bool,
    ) -> _Begin:
        epochs: Mapping[int, Epoch] = {}
        rows_at, loaded = None, None
        if tail is not None:
            epochs = epochs_of_load(
                marks.epochs, tail.of_table(name), ends, marks.missed, is_marked=is_marked or tail.is_marked
            )
            newest = tail.newest(next(iter(epochs.values()), None))
            rows_at = end_of_commit(newest.commit_lsn) if newest else LOWEST
            loaded = LoadedCommit(newest.commit_lsn, newest.committed_at) if newest else None
        found = {
            number: PartitionMark(end.high, epoch=epochs.get(number), loaded=loaded, database=database)
            for number, end in ends.items()
        }
        fault = NOT_IN_SIGHT if tail and tail.has_limit else None
        return cls(tuple(MemberMark(str(number), str(mark)) for number, mark in found.items()), rows_at, fault)


def missed_fault(missed: Epoch) -> FeedFault:
    """Return why changes before an epoch that another table has begun are lost."""
    since = f"{missed.begins_at:%Y-%m-%d %H:%M:%S} UTC"
    cause = f"the log of the database went back, as events of another table show since {since}."
    return FeedFault(Verdict.INSTANCE_REPLACED, cause)


def find_faults(
    marks: Mapping[int, PartitionMark], ends: Mapping[int, PartitionEnds], database: str
) -> Iterator[FeedFault]:
    """Yield why changes after marks cannot be read."""
    former = next((mark.database for mark in marks.values() if mark.database not in ("", database)), "")
    if former:
        cause = f"the database is {database} now, and was {former}: changes that have the earlier name are not read."
        yield FeedFault(Verdict.INSTANCE_REPLACED, cause)
    for number, mark in marks.items():
        end = ends.get(number)
        if mark.lost:
            yield FeedFault(Verdict.EXPIRED, f"{mark.lost}.")
        elif mark.replaced:
            yield FeedFault(Verdict.INSTANCE_REPLACED, f"{mark.replaced}.")
        elif end is None:
            yield FeedFault(Verdict.INSTANCE_REPLACED, f"partition {number} is gone: the stream was created again.")
        elif end.high < mark.next:
            cause = f"partition {number} ends at {end.high}, and was read up to {mark.next}: it was created again."
            yield FeedFault(Verdict.AHEAD_OF_SOURCE, cause)
        elif end.low > mark.next:
            cause = f"messages {mark.next} to {end.low - 1} of partition {number} are no longer in the stream."
            yield FeedFault(Verdict.EXPIRED, cause, "raise the retention of the stream, or run more often.")


class _Tables:
    """The tables that were asked for, as far as the login may see them."""

    def __init__(
        self,
        tables: Sequence[FoundTable],
        columns: Sequence[Row],
        keys: Sequence[Row],
        options: Mapping[int, StreamOptions],
    ) -> None:
        self._tables = tables
        self._columns, self._keys = grouped(columns), grouped(keys)
        self._options = options

    def spelling_of(self, name: TableName) -> TableName:
        """Return the name of a table as the server spells it; as it was asked for if there is no such table."""
        found = find_table(self._tables, name)
        return found.name if found else name

    def snapshot_of(self, name: TableName, begin: _Begin, marks: _Marks) -> TableSnapshot:
        """Return what was found of one table."""
        found = find_table(self._tables, name)
        if found is None:
            return TableSnapshot(name, False, None, LsnAbsence.NULL)
        options = self._options.get(found.object_id, WHOLE)
        return TableSnapshot(
            table=name,
            exists=True,
            instance=CaptureInstance(
                identity=InstanceIdentity(str(found.name), found.object_id, _BEGINNING),
                table=SourceTable(
                    found.name,
                    self._columns_of(found),
                    self._key_of(found),
                    is_partial=options.is_partial,
                ),
                start_lsn=Version.of(0),
                supports_net_changes=False,
                has_command_id=False,
                has_members=True,
            ),
            min_lsn=Version.of(0),
            last_change_lsn=Version.of(0) if marks.is_quiet else None,
            max_column_id=found.max_column_id,
            server_name=found.name,
            masked=found.masked,
            filters=found.filters,
            ends=begin.ends,
            rows_at=begin.rows_at,
            fault=marks.fault,
            plan_fault=options.fault,
            load_fault=begin.fault,
        )

    def _columns_of(self, table: FoundTable) -> tuple[SourceColumn, ...]:
        """Return the columns that events may carry, with their ids as ordinals."""
        rows = self._columns.get(table.object_id, [])
        columns = (read_source_column((row[1], row[-1], *row[2:-1])) for row in rows)
        return tuple(column for column in columns if column.type_name not in _NEVER_STREAMED)

    def _key_of(self, table: FoundTable) -> tuple[str, ...]:
        return tuple(row[1] for row in self._keys.get(table.object_id, []))


def _read_tables(session: SourceSession, tables: Sequence[TableName]) -> _Tables:
    described, _, columns, keys, masked, filters = session.fetch_sets(
        read_sql("read_tables"), (encode_names(set(tables)), b"", bytes(10))
    )
    found = build_tables(described, masked, filters)
    return _Tables(found, columns, keys, read_options(session, [table.object_id for table in found]))
