"""The facts about a stream for a diagnosis."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from floodmark.core.doctor.stream import ServerStream, StreamedTable, StreamFacts, StreamGroup
from floodmark.core.doctor.stream_retention import OldestMessage, StreamRetention, UnreadMessages
from floodmark.core.schema import TableName
from floodmark.core.source.feed import MemberMark
from floodmark.sources.event_stream.connection import StreamConnection
from floodmark.sources.event_stream.marks import PartitionMark
from floodmark.sources.event_stream.options import read_options
from floodmark.sources.event_stream.progress import unread_ranges
from floodmark.sources.event_stream.transport import EventStream, PartitionEnds, Place
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.sql_files import read_sql

_Marks = Mapping[TableName, Sequence[MemberMark]]


def read_stream_facts(connection: StreamConnection, tables: Collection[int], marks: _Marks) -> StreamFacts:
    """Return the facts. ``tables``: object_ids. ``marks``: where tables were read to, as far as it is known.

    Raises ConfigError for a stream that cannot be reached, and SourceError for the database.
    """
    stream = connection.open_stream()
    ends = stream.read_ends()
    with connect(connection.database, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        server = _read_server(session, tables)
    messages = sum(end.high - end.low for end in ends.values())
    return StreamFacts(stream.topic, len(ends), messages, server, _read_retention(stream, ends, marks))


def _read_retention(stream: EventStream, ends: Mapping[int, PartitionEnds], marks: _Marks) -> StreamRetention | None:
    oldest = [(number, end.low) for number, end in ends.items() if end.low < end.high]
    unread = {
        table: [(number, begin) for number, begin, _ in unread_ranges(found, ends)]
        for table, found in marks.items()
        if any(each.mark for each in found)  # others are not loaded yet
    }
    kept = stream.read_retention({*oldest, *(place for places in unread.values() for place in places)})
    if kept is None:
        return None
    return StreamRetention(
        kept.rules,
        kept.refusal,
        tuple(OldestMessage(*place, kept.times.get(place)) for place in oldest),
        {table: _unread(places, kept.times, marks[table], ends) for table, places in unread.items()},
    )


def _unread(
    places: Sequence[Place],
    times: Mapping[Place, datetime],
    marks: Sequence[MemberMark],
    ends: Mapping[int, PartitionEnds],
) -> UnreadMessages:
    gone = next(_gone(marks, ends), "")
    return UnreadMessages(min((times[place] for place in places if place in times), default=None), gone)


def _gone(marks: Sequence[MemberMark], ends: Mapping[int, PartitionEnds]) -> Iterator[str]:
    for each in marks:
        end = ends.get(int(each.member))
        if end is not None and each.mark and (begin := PartitionMark.parse(each.mark).next) < end.low:
            yield f"messages {begin} to {end.low - 1} of partition {each.member}"


def _read_server(session: SourceSession, tables: Collection[int]) -> ServerStream:
    rows = session.fetch_named(read_sql("read_stream_settings"))
    enabled = next((bool(row["is_event_stream_enabled"]) for row in rows if "is_event_stream_enabled" in row), None)
    groups = tuple(
        StreamGroup(row["table_group_name"], row["partition_scheme"], row["encoding"])
        for row in rows
        # Groups of Synapse Link and mirroring have other numbers, and on older servers no such columns.
        if row.get("destination_type") == 1 and row.get("encoding") is not None
    )
    failed = next(((row["error_number"], row["entry_time"]) for row in rows if "error_number" in row), None)
    streamed = {
        table: StreamedTable(options.group, options.has_all_columns, options.has_old_values)
        for table, options in (read_options(session, tables) if enabled and groups else {}).items()
    }
    return ServerStream(enabled, groups, streamed, failed)
