"""The facts about a stream for a diagnosis."""

from __future__ import annotations

from collections.abc import Collection

from floodmark.core.doctor.stream import ServerStream, StreamedTable, StreamFacts, StreamGroup
from floodmark.sources.event_stream.connection import StreamConnection
from floodmark.sources.event_stream.options import read_options
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.sql_files import read_sql


def read_stream_facts(connection: StreamConnection, tables: Collection[int]) -> StreamFacts:
    """Return the facts. ``tables``: object_ids.

    Raises ConfigError for a stream that cannot be reached, and SourceError for the database.
    """
    stream = connection.open_stream()
    ends = stream.read_ends()
    with connect(connection.database, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        server = _read_server(session, tables)
    return StreamFacts(stream.topic, len(ends), sum(end.high - end.low for end in ends.values()), server)


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
