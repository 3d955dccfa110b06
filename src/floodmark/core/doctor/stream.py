"""The findings of ``doctor`` on a source that is read from its event stream (docs/reference/event_stream.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from floodmark.core.doctor.finding import Finding, Grade
from floodmark.core.doctor.grants import create_user
from floodmark.core.doctor.server import DiagnosisInput, ServerFindings, examine_tls
from floodmark.core.doctor.stream_retention import StreamRetention, examine_retention, examine_unread
from floodmark.core.doctor.tables import examine_key, examine_types, examine_verdict
from floodmark.core.schema import TableName
from floodmark.core.source.scripts import bracket, grant_select, literal
from floodmark.core.source.snapshot import TableSnapshot

_NO_ORDER, _BINARY = 0, 2
_GROUP = "floodmark"
_LATELY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """A stream group. The numbers are those of sys.sp_help_change_feed_table_groups."""

    name: str
    partition_scheme: int
    encoding: int


@dataclass(frozen=True, slots=True)
class StreamedTable:
    """How a table was added to its group."""

    group: str
    has_all_columns: bool
    has_old_values: bool


@dataclass(frozen=True, slots=True)
class ServerStream:
    """How the server streams the database, as far as the login may see it."""

    is_enabled: bool | None = None
    """None: the server has no change event streaming."""
    groups: tuple[StreamGroup, ...] = ()
    """Empty too where the login may not see them."""
    tables: Mapping[int, StreamedTable] = field(default_factory=dict)
    """The streamed tables by their object_ids."""
    failed: tuple[int, datetime] | None = None
    """The number of the newest error of a delivery, and its time on the server's clock."""


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The facts about a stream."""

    topic: str
    partitions: int
    messages: int
    """The number of messages that can be read now."""
    server: ServerStream = ServerStream()
    retention: StreamRetention | None = None
    """None for files, which their owner removes."""


def diagnose_stream(examined: DiagnosisInput, facts: StreamFacts) -> tuple[Finding, ...]:
    """Return the findings: the stream first, then the tables in the order of the configuration."""
    database = examined.snapshot.database
    found = [Finding(grade, check, database, text, fix) for grade, check, text, fix in _examine_server(examined, facts)]
    found.append(_examine_topic(facts))
    found.extend(examine_retention(examined, facts.retention, facts.topic))
    for settings, validity, seen in zip(
        examined.settings.tables, examined.validities, examined.snapshot.tables, strict=True
    ):
        feed = f"events in {facts.topic}" if seen.instance else ""
        found.extend(examine_verdict(settings, validity, feed, validity.hint))
        if seen.instance is None:
            continue
        found.extend(examine_key(settings, seen.instance))
        found.extend(examine_types(settings, seen.instance))
        found.extend(_examine_streaming(seen, facts.server))
        found.extend(examine_unread(examined, facts.retention, settings.source))
    return tuple(found)


def _examine_server(examined: DiagnosisInput, facts: StreamFacts) -> ServerFindings:
    yield from examine_tls(examined)
    server = facts.server
    if server.is_enabled is None:
        text = "the server has no change event streaming: how its tables are streamed is not checked."
        yield Grade.NOTE, "streaming", text, "Check the settings where the events are made: see docs/event_streams.md."
    elif not server.is_enabled:
        fix = set_up_stream(each.source for each in examined.settings.tables)
        yield Grade.PROBLEM, "streaming", "change event streaming is not enabled: there are no new events.", fix
    elif not server.groups:
        text = "there is no stream group, or the login may not see it: how tables are streamed is not checked."
        fix = "Run sys.sp_help_change_feed_table_groups as a member of db_owner, or grant the login CONTROL."
        yield Grade.NOTE, "streaming", text, fix
    else:
        yield Grade.GOOD, "streaming", f"enabled, with {len(server.groups)} stream groups.", ""
        yield from _examine_groups(server)
    if server.failed is not None and examined.snapshot.taken_at - server.failed[1] < _LATELY:
        number, at = server.failed
        text = f"a delivery failed with error {number} at {at:%Y-%m-%d %H:%M:%S}; what is not delivered holds the log."
        yield Grade.RISK, "deliveries", text, "SELECT * FROM sys.dm_change_feed_errors ORDER BY entry_time DESC;"


def _examine_groups(server: ServerStream) -> ServerFindings:
    used = {table.group for table in server.tables.values()}
    for group in server.groups:
        if group.name not in used:
            continue
        if group.encoding == _BINARY:
            text = f"stream group {group.name} has the encoding Binary, whose framing is not documented."
            yield Grade.RISK, "encoding", text, "Create a group with @encoding = N'JSON', and move its tables there."
        if group.partition_scheme == _NO_ORDER:
            text = f"stream group {group.name} has no partition key: the events of a row come in any order."
            fix = (
                "Take @partition_key_scheme = N'Table' in a new group. Floodmark puts them in order, but waits for all."
            )
            yield Grade.NOTE, "partition key", text, fix


def _examine_topic(facts: StreamFacts) -> Finding:
    if not facts.partitions:
        text = "there is no partition: nothing was streamed yet, or the path is wrong."
        fix = "Check the stream group (sys.sp_help_change_feed_table_groups), and the path of the stream."
        return Finding(Grade.PROBLEM, "stream", facts.topic, text, fix)
    return Finding(Grade.GOOD, "stream", facts.topic, f"{facts.partitions} partitions, {facts.messages} messages.")


def _examine_streaming(seen: TableSnapshot, server: ServerStream) -> Iterator[Finding]:
    """Yield how a table is streamed. It is not known where no group can be seen."""
    if seen.instance is None or not (server.is_enabled and server.groups):
        return
    table = seen.server_name or seen.table
    found = server.tables.get(seen.instance.identity.object_id)
    if found is None:
        fix = _add_table(table, server.groups[0].name)
        yield Finding(Grade.PROBLEM, "stream group", str(table), "the table is not streamed.", fix)
        return
    again = f"{_remove_table(table, found.group)} {_add_table(table, found.group)} Then load the table again."
    if not found.has_all_columns:
        text = "events have the columns that changed alone: a row that the target lacks stops the table."
        yield Finding(Grade.RISK, "stream group", str(table), text, again)
    if not found.has_old_values:
        text = "events have no old values: a delete has the key alone."
        yield Finding(Grade.NOTE, "stream group", str(table), text, again)


def set_up_stream(tables: Iterable[TableName]) -> str:
    """Return the script in T-SQL that streams tables. The parts in angle brackets are the reader's."""
    lines = [
        "-- SQL Server 2025 only:",
        "ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = ON;",
        "CREATE DATABASE SCOPED CREDENTIAL hub WITH IDENTITY = '<policy>', SECRET = '<key>';",
        "EXEC sys.sp_enable_event_stream;",
        f"EXEC sys.sp_create_event_stream_group @stream_group_name = {literal(_GROUP)},"
        " @destination_type = N'AzureEventHubsApacheKafka',"
        " @destination_location = N'<namespace>.servicebus.windows.net:9093/<event hub>',"
        " @destination_credential = hub, @partition_key_scheme = N'Table', @encoding = N'JSON';",
        *(_add_table(table, _GROUP) for table in tables),
    ]
    return "\n".join(lines)


def _add_table(table: TableName, group: str) -> str:
    return f"EXEC sys.sp_add_object_to_event_stream_group {_in_group(table, group)};"


def _remove_table(table: TableName, group: str) -> str:
    return f"EXEC sys.sp_remove_object_from_event_stream_group {_in_group(table, group)};"


def _in_group(table: TableName, group: str) -> str:
    return f"@stream_group_name = {literal(group)}, @object_name = {literal(f'{table.schema}.{table.name}')}"


def build_stream_grants(database: str, login: str, tables: Iterable[TableName]) -> str:
    """Return the script in T-SQL that grants a login all it needs. It may be run repeatedly."""
    lines = [
        f"-- All rights that Floodmark needs with login {login}. To be run by the DBA.",
        f"USE {bracket(database)};",
        create_user(login),
        *(grant_select(table.schema, table.name, login) for table in sorted(set(tables))),
    ]
    return "\n".join(lines) + "\n"
