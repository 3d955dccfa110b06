"""The findings of ``doctor`` on an event stream (docs/reference/event_stream.md), and the heartbeat of the stream."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from floodmark.core.alerts import HEARTBEAT_MISSING, heartbeat_missing
from floodmark.core.capture import HeartbeatSettings, bracket, bracket_table, grant_select, literal
from floodmark.core.doctor import (
    Answer,
    Answers,
    DiagnosisInput,
    Finding,
    Grade,
    about,
    create_user,
    examine_key,
    examine_tls,
    examine_types,
    examine_verdict,
    first_of,
)
from floodmark.core.errors import ConfigError, FloodmarkError, command_line
from floodmark.core.position import format_duration
from floodmark.core.schema import TableName
from floodmark.core.settings import TableSettings
from floodmark.core.snapshot import TableSnapshot
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, SqlServerConnection, connect
from floodmark.sources.sqlserver.tables import read_sql
from floodmark.sync.alerts import Alerts

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger

# --------------------------------------------------------------------------------------------------------------------
# How long the messages of a stream are kept, compared with the times between runs and with what was read.


_LEAST_FIX = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class RemovalRules:
    """The settings of a topic by which a broker removes its messages."""

    kept: timedelta | None
    """``retention.ms``; None: no message is removed because of its age."""
    kept_bytes: int | None = None
    """``retention.bytes``, for each partition; None: none is removed because of the others."""
    is_compacted: bool = False
    """Whether ``cleanup.policy`` has ``compact``."""


@dataclass(frozen=True, slots=True)
class OldestMessage:
    """The oldest message that a partition has."""

    partition: int
    offset: int
    """Above 0 where messages before it were removed."""
    at: datetime | None
    """Its time in UTC, by which retention counts; None where it has none."""


@dataclass(frozen=True, slots=True)
class UnreadMessages:
    """The messages of a stream that were not read for a table."""

    oldest_at: datetime | None = None
    """The time of the oldest one in UTC; None where all were read, or where it has none."""
    gone: str = ""
    """The messages that were removed before they were read; "" for none."""


@dataclass(frozen=True, slots=True)
class StreamRetention:
    """How long the messages of a topic are kept."""

    rules: RemovalRules | None
    """None where the broker does not show them."""
    refusal: str = ""
    """The reason why it does not."""
    oldest: tuple[OldestMessage, ...] = ()
    """Of each partition that has messages."""
    unread: Mapping[TableName, UnreadMessages] = field(default_factory=dict)
    """By the tables of which it is known where they were read to."""


def examine_retention(examined: DiagnosisInput, retention: StreamRetention | None, topic: str) -> Answers:
    """Yield the answers on what a stream keeps. retention: None for files."""
    needed = _days(_needed(examined))
    if retention is None:
        text = "the files are kept as long as the owner of the folder keeps them, which is not known here."
        fix = f"Keep them for {needed} or longer: see the lifecycle rules of the storage account."
        yield Grade.NOTE, "retention", text, fix
    elif retention.rules is None:
        yield _hidden_rules(retention, examined.now_utc, needed)
    else:
        yield from _examine_rules(examined, retention, retention.rules, topic)


def _hidden_rules(retention: StreamRetention, now: datetime, needed: str) -> Answer:
    cut = _youngest_cut(retention)
    known = ""
    if cut is not None and cut.at is not None:
        known = (
            f" Messages were removed, and the oldest one left in partition {cut.partition} is {_age(now, cut.at)} old."
        )
    elif retention.oldest:
        known = f" {_describe_oldest(retention, now)}."
    return (
        Grade.NOTE,
        "retention",
        f"the broker does not show how long messages are kept ({retention.refusal}).{known}",
        f"Check that it is {needed} or more: on the page Properties of the event hub, or as retention.ms of the topic."
        " A login that may describe the topic's configuration shows it here.",
    )


def _examine_rules(examined: DiagnosisInput, retention: StreamRetention, rules: RemovalRules, topic: str) -> Answers:
    if rules.is_compacted:
        yield (
            Grade.PROBLEM,
            "cleanup policy",
            "compaction removes events: of those with the same key of the message, only the newest is kept.",
            f"{_set(topic, 'cleanup.policy=delete')} (an event hub keeps its policy: create another one, with Delete)",
        )
    yield _examine_time(examined, retention, rules.kept, topic)
    if rules.kept_bytes is not None:
        yield _examine_size(examined, retention, rules.kept_bytes, topic)


def _examine_time(examined: DiagnosisInput, retention: StreamRetention, kept: timedelta | None, topic: str) -> Answer:
    check, now = "retention", examined.now_utc
    oldest = f" {_describe_oldest(retention, now)}." if retention.oldest else ""
    if kept is None:
        return Grade.GOOD, check, f"messages are kept without a limit of time.{oldest}", ""
    interval, needed = examined.interval, _needed(examined)
    stated = f"messages are kept for {_days(kept)}"
    if kept >= needed:
        return Grade.GOOD, check, f"{stated}.{oldest}", ""
    wanted = max(needed, _LEAST_FIX)
    fix = _set(topic, f"retention.ms={wanted // timedelta(milliseconds=1)}")
    fix = f"{fix} (an event hub: the retention on its page Properties, {wanted // timedelta(hours=1)} hours)"
    if interval is not None and kept < interval:
        between = f"up to {_days(interval)} are between two runs"
        return Grade.PROBLEM, check, f"{stated}, and {between}: changes are lost before they are read.{oldest}", fix
    every = f", and a run starts every {interval}" if interval else ""
    return Grade.RISK, check, f"{stated}{every}: after few failed runs, changes are lost.{oldest}", fix


def _examine_size(examined: DiagnosisInput, retention: StreamRetention, kept_bytes: int, topic: str) -> Answer:
    """Return the finding on a limit of bytes. How long it reaches shows a partition of which messages were removed."""
    check, limit = "retention size", f"a partition keeps {kept_bytes:,} bytes at most"
    fix = _set(topic, "retention.bytes=-1")
    cut = _youngest_cut(retention)
    if cut is None or cut.at is None:
        return Grade.NOTE, check, f"{limit}: how long that is depends on the number of changes.", fix
    age = _age(examined.now_utc, cut.at)
    if examined.now_utc - cut.at < _needed(examined):
        text = f"{limit}: in partition {cut.partition}, only the messages of the last {age} are left."
        return Grade.RISK, check, text, fix
    return Grade.GOOD, check, f"{limit}: that is {age} in partition {cut.partition}.", ""


def examine_unread(examined: DiagnosisInput, retention: StreamRetention | None, table: TableName) -> Answers:
    """Yield how long the messages are still kept that were not read for a table. Nothing where that is not known."""
    unread = retention.unread.get(table) if retention else None
    if retention is None or unread is None:
        return
    pipeline = examined.settings.name
    if unread.gone:
        text = f"{unread.gone} were removed before they were read: changes are lost."
        fix = f"Raise the retention of the stream, then: {command_line('reload', pipeline, table)}"
        yield Grade.PROBLEM, "unread messages", text, fix
        return
    kept = retention.rules.kept if retention.rules else None
    if kept is None or unread.oldest_at is None:
        return
    left = kept - (examined.now_utc - unread.oldest_at)
    is_short = left < (examined.interval or examined.freshness)
    text = f"the oldest message that was not read is {_age(examined.now_utc, unread.oldest_at)} old"
    more = f"{text}, and is kept for {format_duration(left.total_seconds())} more"
    fix = f"{command_line('run', pipeline)}"
    yield from first_of(
        "unread messages",
        (left <= timedelta(0), Grade.RISK, f"{text}, and may be removed at any time.", fix),
        (is_short, Grade.RISK, f"{more}: a run may come too late.", fix),
        (True, Grade.GOOD, f"{more}.", ""),
    )


def _needed(examined: DiagnosisInput) -> timedelta:
    return timedelta(minutes=examined.needed_minutes)


def _youngest_cut(retention: StreamRetention) -> OldestMessage | None:
    """Return the youngest of the oldest messages of partitions that have lost others; None without such a partition."""
    cut = [each for each in retention.oldest if each.offset > 0 and each.at is not None]
    return max(cut, key=lambda each: each.at or datetime.min, default=None)


def _describe_oldest(retention: StreamRetention, now: datetime) -> str:
    ages = [each.at for each in retention.oldest if each.at is not None]
    return f"The oldest one is {_age(now, min(ages))} old" if ages else "The time of the oldest one is not known"


def _age(now: datetime, at: datetime) -> str:
    return format_duration(max((now - at).total_seconds(), 0.0))


def _days(kept: timedelta) -> str:
    return str(kept).removesuffix(", 0:00:00")


def _set(topic: str, setting: str) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server <broker> --alter --entity-type topics --entity-name {topic}"
        f" --add-config {setting}"
    )


# --------------------------------------------------------------------------------------------------------------------


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
    found = about(examined.snapshot.database, _examine_server(examined, facts))
    found += about(facts.topic, (_examine_topic(facts), *examine_retention(examined, facts.retention, facts.topic)))
    for settings, validity, seen in examined.tables:
        feed = f"events in {facts.topic}" if seen.feed else ""
        found += about(settings.source, examine_verdict(validity, feed, validity.hint))
        if seen.feed is not None:
            found += about(settings.source, examine_key(settings, seen.feed))
            found += about(settings.source, examine_types(settings, seen.feed))
            found += about(seen.server_name or seen.table, _examine_streaming(settings, seen, facts.server))
            found += about(settings.source, examine_unread(examined, facts.retention, settings.source))
    return tuple(found)


def _examine_server(examined: DiagnosisInput, facts: StreamFacts) -> Answers:
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


def _examine_groups(server: ServerStream) -> Answers:
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


def _examine_topic(facts: StreamFacts) -> Answer:
    if facts.partitions:
        return Grade.GOOD, "stream", f"{facts.partitions} partitions, {facts.messages} messages.", ""
    text = "there is no partition: nothing was streamed yet, or the path is wrong."
    fix = "Check the stream group (sys.sp_help_change_feed_table_groups), and the path of the stream."
    return Grade.PROBLEM, "stream", text, fix


def _examine_streaming(settings: TableSettings, seen: TableSnapshot, server: ServerStream) -> Answers:
    """Yield how a table is streamed. It is not known where no group can be seen."""
    if seen.feed is None or not (server.is_enabled and server.groups):
        return
    table = seen.server_name or seen.table
    found = server.tables.get(seen.feed.identity.object_id)
    if found is None:
        fix = _add_table(table, server.groups[0].name)
        yield Grade.PROBLEM, "stream group", "the table is not streamed.", fix
        return
    again = f"{_remove_table(table, found.group)} {_add_table(table, found.group)} Then load the table again."
    if settings.where is not None and not (found.has_all_columns and found.has_old_values):
        text = "events leave out columns, or the values before a change: nothing shows whether a row passes the filter."
        yield Grade.PROBLEM, "stream group", text, again
    if not found.has_all_columns:
        text = "events have the columns that changed alone: a row that the target lacks stops the table."
        yield Grade.RISK, "stream group", text, again
    if not found.has_old_values:
        text = "events have no old values: a delete has the key alone."
        yield Grade.NOTE, "stream group", text, again


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


def build_stream_grants(
    database: str, login: str, tables: Iterable[TableName], heartbeat: HeartbeatSettings | None
) -> str:
    """Return the script in T-SQL that grants a login all it needs. It may be run repeatedly."""
    lines = [
        f"-- All rights that Floodmark needs with login {login}. To be run by the DBA.",
        f"USE {bracket(database)};",
        create_user(login),
        *(grant_select(table.schema, table.name, login) for table in sorted(set(tables))),
        *([] if heartbeat is None else [grant_beats(heartbeat.table, login)]),
    ]
    return "\n".join(lines) + "\n"


# --------------------------------------------------------------------------------------------------------------------
# The heartbeat of an event stream: a row of the source that Floodmark writes, and whose change must arrive.
#
# The offsets of a stream prove that every message of it was read. Nothing in a stream proves that the server writes to
# it: a stream whose server has stopped is the same as one without changes.


_LOG = logging.getLogger(__name__)

_BEATS_WITHIN_LIMIT = 3
"""The beats within the limit while all arrive: each costs a window, and one that is late should not be the last."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The row of the heartbeat table."""

    number: int
    age_seconds: float
    """By the source's clock."""
    may_write: bool
    """Whether the login may write the next one."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """A judgement on the last beat."""

    has_arrived: bool
    waited_seconds: float
    """The age of the beat."""
    is_due: bool
    """Whether the next one is to be written."""
    is_late: bool


def judge_beat(settings: HeartbeatSettings, beat: Beat, arrived_seconds: float) -> Pulse:
    """Return whether the last beat has arrived.

    arrived_seconds: how long ago the newest window that brought a change of the table was published. The clocks of
    source and ledger may differ: so ages are compared, not times.
    """
    has_arrived = arrived_seconds < beat.age_seconds
    is_late = not has_arrived and beat.age_seconds > settings.limit_seconds
    # A late beat may be lost for good. Only a further one shows that the stream goes on.
    is_due = is_late or (has_arrived and beat.age_seconds >= settings.limit_seconds / _BEATS_WITHIN_LIMIT)
    return Pulse(has_arrived, beat.age_seconds, is_due, is_late)


def make_beats(table: TableName) -> Sequence[str]:
    """Return the statements in T-SQL that create the heartbeat table with its row."""
    name = bracket_table(table)
    return (
        f"CREATE TABLE {name} (id tinyint NOT NULL PRIMARY KEY, beat bigint NOT NULL,"
        " beaten_at datetime2(3) NOT NULL);",
        insert_beat(table),
    )


def insert_beat(table: TableName) -> str:
    """Return the statement that inserts the only row of the heartbeat table."""
    name = bracket_table(table)
    return f"INSERT INTO {name} (id, beat, beaten_at) VALUES (1, 0, SYSUTCDATETIME());"  # noqa: S608


def grant_beats(table: TableName, user: str) -> str:
    """Return the statement that lets a user write beats."""
    return f"GRANT UPDATE ON {bracket_table(table)} TO {bracket(user)};"


class StreamBeats:
    """The heartbeats of an event stream, with one connection to the database per call."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_beat(self, table: TableName) -> Beat:
        """Return the last beat. Raises ConfigError where the table does not exist, or lacks its row."""
        name = bracket_table(table)
        with self._connect() as session:
            [(object_id,)] = session.fetch("SELECT OBJECT_ID(?, N'U')", (name,))
            if object_id is None:
                raise ConfigError(
                    str(table),
                    "the heartbeat table does not exist, or the login may not see it.",
                    " ".join(make_beats(table)),
                )
            rows = session.fetch(read_sql("read_stream_beat").format(table=name, literal=literal(name)[1:]))
        if not rows:
            raise ConfigError(str(table), "the heartbeat table has no row with id 1.", insert_beat(table))
        number, age_seconds, may_write = rows[0]
        return Beat(number, max(float(age_seconds), 0.0), bool(may_write))

    def write_beat(self, table: TableName) -> None:
        """Write the next beat."""
        with self._connect() as session:
            session.fetch_sets(read_sql("write_stream_beat").format(table=bracket_table(table)))

    def _connect(self) -> SourceSession:
        return connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS)


def keep_heartbeat(
    pipeline: str, settings: HeartbeatSettings, *, beats: StreamBeats, ledger: PostgresLedger, alerts: Alerts
) -> None:
    """Raise or end the alert about the heartbeat, and write the next beat where it is due.

    A heartbeat that cannot be read or written never fails the run. Nothing is judged before the first load of the
    table, and while it is left out of windows, of which there is another alert.
    """
    try:
        # The source first: the moments between the two queries then count as waiting, never as an arrival.
        beat = beats.read_beat(settings.table)
        arrived_seconds = ledger.seconds_since_change(pipeline, settings.table)
        is_left_out = any(each.table == settings.table for each in ledger.list_stopped(pipeline))
        if arrived_seconds is None or is_left_out:
            return
        pulse = judge_beat(settings, beat, arrived_seconds)
        if pulse.is_late:
            alerts.raise_alert(heartbeat_missing(pipeline, settings, beat.number, pulse.waited_seconds))
        elif pulse.has_arrived:
            alerts.end_alerts(HEARTBEAT_MISSING, pipeline)
        if pulse.is_due:
            beats.write_beat(settings.table)
    except FloodmarkError as error:
        _LOG.warning("Pipeline %s has no heartbeat: %s", pipeline, error)


def examine_beats(beats: StreamBeats, source: str, table: TableName | None) -> Iterator[Finding]:
    """Yield the finding on the heartbeat of a stream. table: None where it has none."""
    if table is None:
        text = "the source has no heartbeat: a server that no longer streams is taken for one without changes."
        yield Finding(Grade.NOTE, "heartbeat", source, text, "Set one: see docs/event_streams.md.")
        return
    try:
        beat = beats.read_beat(table)
    except FloodmarkError as error:
        yield Finding(Grade.PROBLEM, "heartbeat", str(table), error.message, error.hint)
        return
    if beat.may_write:
        words = f"beat {beat.number} was written {format_duration(beat.age_seconds)} ago."
        yield Finding(Grade.GOOD, "heartbeat", str(table), words, "")
    else:
        fix = grant_beats(table, "<login>")
        yield Finding(Grade.PROBLEM, "heartbeat", str(table), "the login may not update the table.", fix)
