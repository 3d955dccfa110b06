"""``EventStreamSource``: the control queries of a run on a database whose changes are streamed as events.

The database shows the tables with their columns; the stream shows how far each partition goes. Positions of windows are
moments, as those of a fleet (ADR 65). Where a table was read to is in its marks, one for each partition.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from floodmark.core.drift import CDC_DRIFT_WORDS, DriftWords
from floodmark.core.errors import ConfigError
from floodmark.core.position import NoPosition, Position, Version
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import DriftClass
from floodmark.core.snapshot import (
    Feed,
    FeedFault,
    FeedIdentity,
    MemberMark,
    Sentences,
    SourceSnapshot,
    SourceWords,
    TableSnapshot,
    Verdict,
)
from floodmark.sources.event_stream.change import LOWEST, end_of_commit
from floodmark.sources.event_stream.doctor import (
    OldestMessage,
    ServerStream,
    StreamedTable,
    StreamFacts,
    StreamGroup,
    StreamRetention,
    UnreadMessages,
)
from floodmark.sources.event_stream.envelope import WHOLE, StreamOptions, read_options
from floodmark.sources.event_stream.epochs import (
    Epoch,
    LoadedCommit,
    PartitionMark,
    Tail,
    are_marked,
    epochs_of_load,
    missed_epoch,
    oldest,
    read_tail,
    unread_ranges,
)
from floodmark.sources.event_stream.stream_pass import SEGMENTS_WITHIN
from floodmark.sources.event_stream.transport import CaptureFolder, EventStream, KafkaTopic, PartitionEnds, Place
from floodmark.sources.sqlserver.driver import (
    CONTROL_TIMEOUT_SECONDS,
    SourceSession,
    SqlServerConnection,
    build_identity,
    connect,
)
from floodmark.sources.sqlserver.tables import (
    FoundTable,
    Row,
    build_tables,
    encode_names,
    find_table,
    grouped,
    read_source_column,
    read_sql,
)

# --------------------------------------------------------------------------------------------------------------------
# ``StreamConnection``: the database whose changes are streamed, and the topic that has them.


_TRANSPORTS: dict[str, type[CaptureFolder | KafkaTopic]] = {"folder": CaptureFolder, "kafka": KafkaTopic}


@dataclass(frozen=True, slots=True)
class StreamConnection:
    """A source of kind ``event_stream``. It travels to the load job as JSON."""

    database: SqlServerConnection
    stream: CaptureFolder | KafkaTopic

    @classmethod
    def from_json(cls, text: str) -> StreamConnection:
        """Return the connection that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        document = json.loads(text)
        transport = _TRANSPORTS[document["transport"]]
        return cls(SqlServerConnection(**document["database"]), transport(**document["stream"]))

    def to_json(self) -> str:
        """Return the connection as JSON, with its passwords: for an environment variable, never a log."""
        transport = next(name for name, kind in _TRANSPORTS.items() if isinstance(self.stream, kind))
        document = {"database": asdict(self.database), "transport": transport, "stream": asdict(self.stream)}
        return json.dumps(document)

    def portable(self) -> StreamConnection:
        """Return the connection with the contents of its files, for other machines. Raises ValueError."""
        return StreamConnection(self.database.portable(), self.stream.portable())

    @property
    def hosts(self) -> Mapping[str, str]:
        """Return the hosts that are read, by what they are."""
        brokers = self.stream.hosts
        return {"source": self.database.host, **({"stream": brokers[0]} if brokers else {})}

    def open_stream(self) -> EventStream:
        """Return the topic. Raises ConfigError where the library that reads it is not installed."""
        if isinstance(self.stream, CaptureFolder):
            return self.stream
        try:
            from floodmark.sources.event_stream.kafka import KafkaStream  # noqa: PLC0415  (an extra)
        except ImportError:
            raise ConfigError(
                str(self.stream), "the package confluent-kafka is not installed.", "Install floodmark[kafka]."
            ) from None
        return KafkaStream(self.stream)


# --------------------------------------------------------------------------------------------------------------------
# The sentences of verdicts and of drift about an event stream.


_ADD = "Run sys.sp_add_object_to_event_stream_group for it"


class StreamWords(SourceWords):
    """The sentences about change event streaming."""

    def describe_capture(self, capture_running: bool | None) -> str:
        return "the server streams changes as events"

    def not_enabled(self, database: str) -> Sentences:
        return Sentences(
            f"change event streaming is not enabled in database {database}.",
            "Run sys.sp_enable_event_stream there, create a stream group, and add the tables to it.",
        )

    def no_permission(self) -> Sentences:
        return Sentences("the login may not read the table.", "Grant the login SELECT on it.")

    def no_feed(self, wanted: str | None, others: tuple[str, ...], read: FeedIdentity | None) -> Sentences:
        was = " It was when it was read last: the changes since then are only in the table itself." if read else ""
        return Sentences(f"the changes of the table are not streamed.{was}", f"{_ADD}.")

    def describe_feed(self, identity: FeedIdentity) -> str:
        return f"the events of {identity.name} (object {identity.object_id})"

    def replaced(self, found: FeedIdentity, known: FeedIdentity) -> str:
        return "the table was dropped and created again, or the stream was set up again. Changes in between are lost."

    def expired(self, watermark: Position, low_end: str) -> Sentences:
        return Sentences("events after the marks are no longer in the stream.", "run more often.")


STREAM_WORDS = StreamWords()

STREAM_DRIFT_WORDS = DriftWords(
    {
        **CDC_DRIFT_WORDS.effects,
        DriftClass.COLUMN_ADDED: "It is read from now on. The values that existing rows got by its default are no "
        "events: in the target they are NULL until the row changes.",
        DriftClass.TYPE_NARROWED: "The target's column stays as wide as it is.",
        DriftClass.TABLE_DROPPED: "Its changes are no longer streamed. The target stays as it is.",
        DriftClass.CDC_DISABLED: "Later changes are not streamed. The target stays as it is.",
        DriftClass.INSTANCE_REPLACED: "Changes between the two are not streamed.",
    },
    {
        **CDC_DRIFT_WORDS.advice,
        DriftClass.COLUMN_ADDED: "Where these values are needed, load them: floodmark reload.",
        DriftClass.KEY_CHANGED: "Give the target the same key by hand, or change it back at the source; then end the "
        "hold.",
        DriftClass.CDC_DISABLED: f"{_ADD} and reload the table: changes made in between are only in the table itself.",
    },
    effect_of_obstacle="Events leave such a column out. Its values can never reach the target.",
    keeps_ddl=False,
    has_instances=False,
)


# --------------------------------------------------------------------------------------------------------------------


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
    """``sync.ports.Source``, with one connection to the database per call."""

    def __init__(self, connection: StreamConnection) -> None:
        self._connection = connection

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        feeds: Mapping[TableName, str] | None = None,
        positions: Collection[Position] = (),
        marks: Mapping[TableName, Sequence[MemberMark]] | None = None,
        whole: Collection[TableName] = (),
    ) -> SourceSnapshot:
        """Return a snapshot. A table has one feed: ``feeds`` is not used.

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
            newest=Version.of_moment(now, positions),
            newest_at=taken_at,
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
            return TableSnapshot(name, False, None, NoPosition.NULL)
        options = self._options.get(found.object_id, WHOLE)
        return TableSnapshot(
            table=name,
            exists=True,
            feed=Feed(
                identity=FeedIdentity(str(found.name), found.object_id, _BEGINNING),
                table=SourceTable(
                    found.name,
                    self._columns_of(found),
                    self._key_of(found),
                    is_partial=options.is_partial,
                ),
                start=Version.of(0),
                supports_net_changes=False,
                has_command_id=False,
                has_members=True,
            ),
            oldest=Version.of(0),
            last_change=Version.of(0) if marks.is_quiet else None,
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


# --------------------------------------------------------------------------------------------------------------------
# The facts about a stream for a diagnosis.


_MarksOfTables = Mapping[TableName, Sequence[MemberMark]]


def read_stream_facts(connection: StreamConnection, tables: Collection[int], marks: _MarksOfTables) -> StreamFacts:
    """Return the facts. ``tables``: object_ids. ``marks``: where tables were read to, as far as it is known.

    Raises ConfigError for a stream that cannot be reached, and SourceError for the database.
    """
    stream = connection.open_stream()
    ends = stream.read_ends()
    with connect(connection.database, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        server = _read_server(session, tables)
    messages = sum(end.high - end.low for end in ends.values())
    return StreamFacts(stream.topic, len(ends), messages, server, _read_retention(stream, ends, marks))


def _read_retention(
    stream: EventStream, ends: Mapping[int, PartitionEnds], marks: _MarksOfTables
) -> StreamRetention | None:
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
