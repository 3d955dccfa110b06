"""``EventStreamSource``: the control queries of a run on a database whose changes are streamed as events.

The database shows the tables with their columns; the stream shows how far each partition goes. Positions of windows are
moments, as those of a fleet (ADR 65). Where a table was read to is in its marks, one for each partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice

from floodmark.core.lsn import LsnAbsence
from floodmark.core.position import Position
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.source.feed import InstanceIdentity, MemberMark
from floodmark.core.source.snapshot import CaptureInstance, FeedFault, SourceSnapshot, TableSnapshot, Verdict
from floodmark.core.version import Version
from floodmark.sources.event_stream.connection import StreamConnection
from floodmark.sources.event_stream.envelope import parse_envelope
from floodmark.sources.event_stream.faults import EventFaultError
from floodmark.sources.event_stream.marks import PartitionMark, oldest
from floodmark.sources.event_stream.options import WHOLE, StreamOptions, read_options
from floodmark.sources.event_stream.pass_state import SEGMENTS_WITHIN
from floodmark.sources.event_stream.positions import LOWEST, end_of_commit
from floodmark.sources.event_stream.transport import EventStream, PartitionEnds, StreamGapError
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
_TAIL = 200
"""The messages at the end of a partition among which the newest commit is searched."""


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
    ) -> SourceSnapshot:
        """Return a snapshot. A table has one feed: ``instances`` is not used.

        The position of rows is searched where a table may be loaded as a whole: it has no marks, or a fault.
        """
        stream = self._connection.open_stream()
        # Before the tables are read: an event beyond these ends is never older than the rows of a first load.
        ends = stream.read_ends()
        now = datetime.now(UTC)
        compared = {name: _Marks.of((marks or {}).get(name, ()), ends, now) for name in tables}
        is_loading = marks is not None and any(name not in marks or compared[name].fault for name in tables)
        rows_at = _newest_position(stream, ends) if is_loading else None
        with connect(self._connection.database, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
            [(database, taken_at, *names)] = session.fetch(read_sql("read_streamed_database"))
            catalog = _read_tables(session, tables)
        window_ends = tuple(MemberMark(str(number), str(PartitionMark(end.high))) for number, end in ends.items())
        return SourceSnapshot(
            database=database,
            cdc_enabled=True,
            max_lsn=Version.of_moment(now, positions),
            max_lsn_at=taken_at,
            taken_at=taken_at,
            seconds_behind=None,
            capture_running=None,
            tables=tuple(catalog.snapshot_of(name, window_ends, rows_at, compared[name]) for name in tables),
            has_agent=False,
            identity=build_identity(database, *names),
            is_synchronous=True,
            words=STREAM_WORDS,
        )


class _Marks:
    """The marks of a table, compared with what the partitions have."""

    def __init__(self, fault: FeedFault | None, *, is_quiet: bool) -> None:
        self.fault = fault
        self.is_quiet = is_quiet

    @classmethod
    def of(cls, found: Sequence[MemberMark], ends: Mapping[int, PartitionEnds], now: datetime) -> _Marks:
        marks = {int(each.member): PartitionMark.parse(each.mark) for each in found if each.mark}
        met_at = oldest(list(marks.values()))
        waits_too_long = met_at is not None and now - met_at > SEGMENTS_WITHIN
        is_quiet = not waits_too_long and marks.keys() == ends.keys()
        is_quiet = is_quiet and all(mark.next == ends[number].high for number, mark in marks.items())
        return cls(next(find_faults(marks, ends), None), is_quiet=bool(marks) and is_quiet)


def find_faults(marks: Mapping[int, PartitionMark], ends: Mapping[int, PartitionEnds]) -> Iterator[FeedFault]:
    """Yield why changes after marks cannot be read."""
    for number, mark in marks.items():
        end = ends.get(number)
        if mark.lost:
            yield FeedFault(Verdict.EXPIRED, f"{mark.lost}.")
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

    def snapshot_of(
        self, name: TableName, ends: tuple[MemberMark, ...], rows_at: bytes | None, marks: _Marks
    ) -> TableSnapshot:
        """Return what was found of one table."""
        found = find_table(self._tables, name)
        if found is None:
            return TableSnapshot(name, False, None, LsnAbsence.NULL)
        return TableSnapshot(
            table=name,
            exists=True,
            instance=CaptureInstance(
                identity=InstanceIdentity(str(found.name), found.object_id, _BEGINNING),
                table=SourceTable(
                    found.name,
                    self._columns_of(found),
                    self._key_of(found),
                    is_partial=self._options.get(found.object_id, WHOLE).is_partial,
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
            ends=ends,
            rows_at=rows_at,
            fault=marks.fault,
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


def _newest_position(stream: EventStream, ends: Mapping[int, PartitionEnds]) -> bytes:
    """Return the position that all rows of a table have at least that is read from now on (ADR 65).

    It is that of the newest commit among the last messages of the partitions: it was committed before it was streamed.
    """
    newest = LOWEST
    for number, end in ends.items():
        for lsn in _tail_commits(stream, number, end):
            newest = max(newest, end_of_commit(lsn))
    return newest


def _tail_commits(stream: EventStream, number: int, end: PartitionEnds) -> Iterator[bytes]:
    begin = max(end.low, end.high - _TAIL)
    try:
        messages = [each for found in stream.read(number, begin, end.high) for each in found]
    except StreamGapError:
        return  # removed meanwhile; a later commit is not among them
    for each in islice(reversed(messages), _TAIL):
        try:
            yield parse_envelope(each.body or b"").logical_id.commit_lsn.value
        except EventFaultError:
            continue
