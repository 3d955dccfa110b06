"""The kind ``event_stream``: a database whose changes are streamed as events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from floodmark.airflow_connections import read_connection, read_extras, required_field
from floodmark.core.errors import ConfigError
from floodmark.core.settings import DriftClass, DriftPolicy, NetSource
from floodmark.sources.kind import NO_INSTANCES, NO_JOB, NO_SNAPSHOT, KindRules, LoadAdapters
from floodmark.sources.sqlserver.kind import SqlServerKind

if TYPE_CHECKING:
    from typing import Any

    from floodmark.core.capture import HeartbeatSettings
    from floodmark.core.doctor import DiagnosisInput, Finding
    from floodmark.core.drift import DriftWords
    from floodmark.core.plan import TablePlan
    from floodmark.core.position import Position
    from floodmark.core.progress import SourceProgress
    from floodmark.core.schema import Dataset, TableName
    from floodmark.core.settings import PipelineSettings
    from floodmark.core.snapshot import SourceSnapshot
    from floodmark.postgres.ledger.ledger import PostgresLedger
    from floodmark.sources.event_stream.source import StreamConnection
    from floodmark.sources.event_stream.transport import CaptureFolder, KafkaTopic
    from floodmark.sources.kind import Marks
    from floodmark.sync.alerts import Alerts
    from floodmark.sync.ports import OpenReader, Source
    from floodmark.sync.records import DriftSource


@dataclass(frozen=True)
class EventStreamKind(SqlServerKind):
    """A source of kind ``event_stream``."""

    stream_conn_id: str
    """The id of the connection of the stream."""
    name: ClassVar[str] = "event_stream"
    method: ClassVar[str] = "change event streaming"
    rules: ClassVar[KindRules] = KindRules(
        required={"stream_conn_id": "the connection of the stream"},
        source={
            "capture": "there is no capture job",
            "retention": "there is no cleanup job; the stream has its own retention",
        },
        pipeline={
            "net": "every event is a change, and Spark computes the net changes",
            "partitions": "the stream has its own partitions",
            "lag_limit": NO_JOB,
            "backfill": NO_INSTANCES,
        },
        table={
            "capture_instance": NO_INSTANCES,
            "key_spelling": "the events have both spellings of a key",
        },
        styles={
            "snapshot": {"style": NO_SNAPSHOT},
            "history": {
                "key": "one statement may pass declared keys on from row to row, where only all events of its"
                " transaction show which row has a key at the end",
                "security_filtered": "a load must read all rows: nothing else shows whether it has read what an event"
                " changed that comes late",
            },
        },
        drift={"unknown": "the stream has no history of DDL"},
        policies={"propose": NO_INSTANCES},
        patterns="the server lists the options of a streamed table only by its name, so each is named",
        net=NetSource.SPARK,
        drift_defaults={DriftClass.COLUMN_ADDED: DriftPolicy.ALERT},
    )

    def connection(self) -> StreamConnection:
        """Return a database and its stream: an Airflow connection of type kafka, or of type fs for a capture folder.

        Extra of type fs: path, the folder of the event hub. Extra of type kafka: topic and librdkafka's settings.
        Raises ConfigError.
        """
        from floodmark.sources.event_stream.source import StreamConnection
        from floodmark.sources.event_stream.transport import CaptureFolder

        found = read_connection(self.stream_conn_id, "fs", "kafka")
        try:
            if found.conn_type == "kafka":
                stream: CaptureFolder | KafkaTopic = _kafka_topic(found, self.stream_conn_id)
            else:
                extras = read_extras(found, self.stream_conn_id, ("path",))
                stream = CaptureFolder(required_field(extras.get("path"), self.stream_conn_id, "path in its extra"))
        except ValueError as error:
            raise ConfigError(f"connection {self.stream_conn_id}", f"{error}.", "Correct its extra.") from None
        return StreamConnection(self.database(), stream)

    def name_datasets(self) -> Callable[[TablePlan], tuple[Dataset, ...]]:
        """Return the topic for changes, and the table itself for a first load."""
        topic, name_table = (self.connection().stream.dataset,), super().name_datasets()
        return lambda table: topic if table.interval else name_table(table)

    def snapshots(self) -> Source:
        from floodmark.sources.event_stream.source import EventStreamSource

        return EventStreamSource(self.connection())

    def reader(self) -> OpenReader:
        from floodmark.sources.event_stream.reader import EventReader

        found = self.connection()
        return lambda plan, end: EventReader(plan, found.database, end, found.open_stream())

    @classmethod
    def load_adapters(cls) -> LoadAdapters:
        from floodmark.sources.event_stream.reader import open_event_reader, plan_event_reads
        from floodmark.sources.event_stream.source import EventStreamSource, StreamConnection
        from floodmark.sources.sqlserver.login import executor_variables

        return LoadAdapters(
            StreamConnection,
            EventStreamSource,
            open_event_reader,
            plan_event_reads,
            lambda at: executor_variables(at.database),
        )

    def drift(self) -> DriftSource:
        """Return an unknown number of rows at risk: a value by a default does not differ from another."""
        from floodmark.core.drift import RowsAtRisk
        from floodmark.sync.records import SnapshotDrift

        return SnapshotDrift(RowsAtRisk(None))

    def drift_words(self) -> DriftWords:
        from floodmark.sources.event_stream.source import STREAM_DRIFT_WORDS

        return STREAM_DRIFT_WORDS

    def read_progress(self, watermarks: Iterable[Position], marks: Marks) -> SourceProgress:
        """Return the messages beyond the marks: positions of windows are moments."""
        from floodmark.core.progress import SourceProgress
        from floodmark.sources.event_stream.epochs import read_unread

        return SourceProgress({}, None, unread=read_unread(self.connection().open_stream(), marks))

    def diagnose(self, examined: DiagnosisInput, read_marks: Callable[[], Marks]) -> tuple[Finding, ...]:
        from floodmark.sources.event_stream.doctor import diagnose_stream
        from floodmark.sources.event_stream.source import read_stream_facts

        feeds = (table.feed for table in examined.snapshot.tables)
        tables = [feed.identity.object_id for feed in feeds if feed is not None]
        return diagnose_stream(examined, read_stream_facts(self.connection(), tables, read_marks()))

    def examine_heartbeat(self, source: str, table: TableName | None) -> Iterable[Finding]:
        from floodmark.sources.event_stream.doctor import StreamBeats, examine_beats

        return examine_beats(StreamBeats(self.database()), source, table)

    def keep_heartbeat(
        self, pipeline: str, settings: HeartbeatSettings | None, ledger: Callable[[], PostgresLedger], alerts: Alerts
    ) -> None:
        from floodmark.core.alerts import HEARTBEAT_MISSING
        from floodmark.sources.event_stream.doctor import StreamBeats, keep_heartbeat

        if settings is None:
            alerts.end_alerts(HEARTBEAT_MISSING, pipeline)
        else:
            keep_heartbeat(pipeline, settings, beats=StreamBeats(self.database()), ledger=ledger(), alerts=alerts)

    def build_grants(
        self, login: str, settings: PipelineSettings, snapshot: SourceSnapshot, heartbeat: HeartbeatSettings | None
    ) -> str:
        from floodmark.sources.event_stream.doctor import build_stream_grants

        return build_stream_grants(snapshot.database, login, settings.sources, heartbeat)


def _kafka_topic(found: Any, conn_id: str) -> KafkaTopic:
    """Return the topic of a connection of type kafka. Its extra has librdkafka's names, as Airflow's provider wants."""
    from floodmark.sources.event_stream.transport import SETTINGS, KafkaTopic

    known = ("bootstrap.servers", "topic", "sasl.password", "ssl.ca.location", *sorted(SETTINGS))
    left = {name: str(value) for name, value in read_extras(found, conn_id, known).items()}
    servers = required_field(left.pop("bootstrap.servers", ""), conn_id, "bootstrap.servers in its extra")
    topic = required_field(left.pop("topic", ""), conn_id, "topic in its extra")
    password, ca_file = left.pop("sasl.password", ""), left.pop("ssl.ca.location", "")
    return KafkaTopic(servers, topic, left, password, ca_file)
