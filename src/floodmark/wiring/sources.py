"""The adapters of a source, by its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from floodmark.core.errors import ConfigError
from floodmark.core.schema import Dataset, file_dataset, table_dataset
from floodmark.wiring.connections import fleet_connection, source_connection, stream_connection

if TYPE_CHECKING:
    from floodmark.core.doctor.server import DiagnosisInput, Finding
    from floodmark.core.drift.proposals import DriftWords
    from floodmark.core.plan import TablePlan
    from floodmark.core.position import Position
    from floodmark.core.progress import SourceProgress
    from floodmark.core.schema import TableName
    from floodmark.core.settings import PipelineSettings
    from floodmark.core.snapshot import MemberMark, SourceSnapshot, Survey
    from floodmark.sources.cdc.operations import SqlServerJobs, SqlServerRetention
    from floodmark.sources.cdc.source import SqlServerInstances
    from floodmark.sources.compact.reader import Fleet
    from floodmark.sources.event_stream.source import StreamBeats, StreamConnection
    from floodmark.sources.sqlserver.driver import SqlServerConnection
    from floodmark.sync.ports import OpenReader, Source
    from floodmark.sync.records import DriftSource
    from floodmark.sync.replay import ReplaySource

    Marks = Mapping[TableName, Sequence[MemberMark]]


def survey(conn_id: str) -> Survey:
    """Return the tables of the database behind a connection of type mssql. Raises ConfigError."""
    from floodmark.sources.sqlserver.driver import survey_database

    return survey_database(source_connection(conn_id))


@dataclass(frozen=True)
class SourceWiring(ABC):
    """A source. No connection is opened before an adapter is used.

    An adapter that a kind does not have raises ConfigError with the reason.
    """

    conn_id: str
    """The id of the connection in Airflow."""
    stream_conn_id: str = ""
    """The id of the connection of the stream; "" for a kind without one."""
    kind: ClassVar[str]
    """The kind that the configuration says."""
    method: ClassVar[str]
    """How its changes are read, in words that continue "by"."""
    has_instances: ClassVar[bool] = False
    """Whether a table may have several feeds, between which pipelines switch."""
    has_history: ClassVar[bool] = False
    """Whether every change of a past time may be read again."""
    has_log: ClassVar[bool] = False
    """Whether its positions are those of the server's log, which other tools keep too."""

    def connection(self) -> SqlServerConnection:
        """Return the connection to the server. Raises ConfigError."""
        return source_connection(self.conn_id)

    def encryption(self) -> tuple[str, bool]:
        """Return how the connection is encrypted, and whether it trusts any certificate."""
        found = self.connection()
        return found.encrypt, found.trust_server_certificate

    def connection_json(self) -> str:
        """Return what the load job reads from, as JSON with its passwords. Raises ConfigError."""
        return self.connection().to_json()

    @abstractmethod
    def snapshots(self) -> Source:
        """Return the control queries of a run."""

    @abstractmethod
    def reader(self) -> OpenReader:
        """Return the factory of readers of tables for this process."""

    @abstractmethod
    def drift(self) -> DriftSource:
        """Return the details of tables for the drift watch."""

    @abstractmethod
    def drift_words(self) -> DriftWords:
        """Return the sentences about drift."""

    @abstractmethod
    def read_progress(self, watermarks: Iterable[Position], marks: Marks) -> SourceProgress:
        """Return the progress of the source beyond the watermarks, or beyond the marks of members of tables."""

    def name_datasets(self) -> Callable[[TablePlan], tuple[Dataset, ...]]:
        """Return the function that names what a load of a table reads. Raises ConfigError."""
        at = self.connection()
        return lambda table: (table_dataset("mssql", at.host, at.port, at.database, table.source),)

    def replays(self) -> ReplaySource:
        """Return the queries of a replay."""
        raise self._lacks(
            "there is nothing to replay, because the source keeps only the newest change of each key",
            "Reload the table instead: floodmark reload, or the DAG cdc_load_<pipeline>.",
        )

    def instances(self) -> SqlServerInstances:
        """Return the control of capture instances."""
        raise self._lacks("there are no capture instances")

    def jobs(self) -> SqlServerJobs:
        """Return the control of the capture job."""
        raise self._lacks("there is no capture job")

    def retention(self) -> SqlServerRetention:
        """Return the control of the cleanup job."""
        raise self._lacks("there is no cleanup job")

    def beats(self) -> StreamBeats:
        """Return the heartbeat table of a stream."""
        raise self._lacks("there is no stream")

    def read_state(self, table: TableName, name: str | None) -> str:
        """Return a state of SSIS from the table that has it. name: None for the only one."""
        raise self._lacks("there is no state of SSIS")

    @abstractmethod
    def diagnose(self, examined: DiagnosisInput) -> tuple[Finding, ...]:
        """Return the findings on the source and its tables."""

    @abstractmethod
    def build_grants(self, login: str, settings: PipelineSettings, snapshot: SourceSnapshot) -> str:
        """Return the script that grants a login the rights for the tables of a pipeline.

        snapshot: what the login of the connection sees of them.
        """

    def parse_condition(self, where: str, table: TableName) -> str:
        """Return an operator's condition in T-SQL. Raises ConfigError if it is not one condition on the table."""
        from floodmark.sources.sqlserver.condition import parse_condition

        return parse_condition(where, table)

    def _lacks(self, cause: str, hint: str = "") -> ConfigError:
        return ConfigError(f"connection {self.conn_id}", f"{cause}: the kind of the source is {self.kind}.", hint)


@dataclass(frozen=True)
class CdcSourceWiring(SourceWiring):
    """A source of kind ``cdc``."""

    kind: ClassVar[str] = "cdc"
    method: ClassVar[str] = "SQL Server's own change data capture"
    has_instances: ClassVar[bool] = True
    has_history: ClassVar[bool] = True
    has_log: ClassVar[bool] = True

    def snapshots(self) -> Source:
        from floodmark.sources.cdc.source import SqlServerSource

        return SqlServerSource(self.connection())

    def reader(self) -> OpenReader:
        from floodmark.sources.cdc.reader import CdcReader

        connection = self.connection()
        return lambda plan, end: CdcReader(plan, connection, end)

    def replays(self) -> ReplaySource:
        from floodmark.sources.cdc.operations import SqlServerReplaySource

        return SqlServerReplaySource(self.connection())

    def drift(self) -> DriftSource:
        from floodmark.sources.cdc.operations import SqlServerDriftSource

        return SqlServerDriftSource(self.connection())

    def drift_words(self) -> DriftWords:
        from floodmark.core.drift.proposals import CDC_DRIFT_WORDS

        return CDC_DRIFT_WORDS

    def instances(self) -> SqlServerInstances:
        from floodmark.sources.cdc.source import SqlServerInstances

        return SqlServerInstances(self.connection())

    def jobs(self) -> SqlServerJobs:
        from floodmark.sources.cdc.operations import SqlServerJobs

        return SqlServerJobs(self.connection())

    def retention(self) -> SqlServerRetention:
        from floodmark.sources.cdc.operations import SqlServerRetention

        return SqlServerRetention(self.connection())

    def read_state(self, table: TableName, name: str | None) -> str:
        from floodmark.sources.cdc.source import read_state

        return read_state(self.connection(), table, name)

    def read_progress(self, watermarks: Iterable[Position], marks: Marks) -> SourceProgress:
        from floodmark.sources.cdc.source import read_progress

        return read_progress(self.connection(), watermarks)

    def diagnose(self, examined: DiagnosisInput) -> tuple[Finding, ...]:
        from floodmark.core.doctor.cdc import diagnose
        from floodmark.sources.cdc.source import read_facts

        return diagnose(examined, read_facts(self.connection()))

    def build_grants(self, login: str, settings: PipelineSettings, snapshot: SourceSnapshot) -> str:
        from floodmark.core.doctor.server import build_grants, list_read_tables
        from floodmark.sources.cdc.source import read_facts

        facts = read_facts(self.connection())
        return build_grants(facts.database, login, list_read_tables(settings, snapshot), facts.roles)


@dataclass(frozen=True)
class TrackingSourceWiring(SourceWiring):
    """A source of kind ``change_tracking``."""

    kind: ClassVar[str] = "change_tracking"
    method: ClassVar[str] = "SQL Server Change Tracking"

    def snapshots(self) -> Source:
        from floodmark.sources.change_tracking.source import TrackingSource

        return TrackingSource(self.connection())

    def reader(self) -> OpenReader:
        from floodmark.sources.change_tracking.reader import TrackingReader

        connection = self.connection()
        return lambda plan, end: TrackingReader(plan, connection, end)

    def drift(self) -> DriftSource:
        from floodmark.sources.change_tracking.source import TrackingDriftSource

        return TrackingDriftSource(self.connection())

    def drift_words(self) -> DriftWords:
        from floodmark.sources.change_tracking.source import TRACKING_DRIFT_WORDS

        return TRACKING_DRIFT_WORDS

    def read_progress(self, watermarks: Iterable[Position], marks: Marks) -> SourceProgress:
        from floodmark.sources.change_tracking.source import read_progress

        return read_progress(self.connection(), watermarks)

    def diagnose(self, examined: DiagnosisInput) -> tuple[Finding, ...]:
        from floodmark.core.doctor.tracking import diagnose_tracking
        from floodmark.sources.change_tracking.source import read_tracking_facts

        return diagnose_tracking(examined, read_tracking_facts(self.connection()))

    def build_grants(self, login: str, settings: PipelineSettings, snapshot: SourceSnapshot) -> str:
        from floodmark.core.doctor.tracking import build_tracking_grants

        return build_tracking_grants(snapshot.database, login, settings.sources)


@dataclass(frozen=True)
class CompactSourceWiring(SourceWiring):
    """A source of kind ``compact``."""

    kind: ClassVar[str] = "compact"
    method: ClassVar[str] = "the tracking in the files of devices"

    def fleet(self) -> Fleet:
        """Return where the files are. Raises ConfigError."""
        return fleet_connection(self.conn_id)

    def connection(self) -> SqlServerConnection:
        raise self._lacks("there is no server")

    def encryption(self) -> tuple[str, bool]:
        """Return that nothing is left to encrypt: files are read."""
        return "yes", False

    def connection_json(self) -> str:
        return self.fleet().to_json()

    def name_datasets(self) -> Callable[[TablePlan], tuple[Dataset, ...]]:
        """Return the paths of the fleet for every table: a file has all of them."""
        files = tuple(map(file_dataset, self.fleet().paths))
        return lambda table: files

    def snapshots(self) -> Source:
        from floodmark.sources.compact.source import CompactSource

        return CompactSource(self.fleet())

    def reader(self) -> OpenReader:
        from floodmark.sources.compact.reader import CompactReader

        fleet = self.fleet()
        return lambda plan, end: CompactReader(plan, fleet)

    def drift(self) -> DriftSource:
        from floodmark.sources.compact.source import CompactDriftSource

        return CompactDriftSource()

    def drift_words(self) -> DriftWords:
        from floodmark.sources.compact.source import COMPACT_DRIFT_WORDS

        return COMPACT_DRIFT_WORDS

    def read_progress(self, watermarks: Iterable[Position], marks: Marks) -> SourceProgress:
        """Return no numbers: how many changes the devices have is known when their files are read."""
        from floodmark.core.progress import SourceProgress

        return SourceProgress({}, None)

    def diagnose(self, examined: DiagnosisInput) -> tuple[Finding, ...]:
        from floodmark.core.doctor.tracking import diagnose_fleet
        from floodmark.sources.compact.source import read_fleet_facts

        return diagnose_fleet(examined, read_fleet_facts(self.fleet(), examined.settings.sources))

    def build_grants(self, login: str, settings: PipelineSettings, snapshot: SourceSnapshot) -> str:
        raise self._lacks("a file has no logins", "Let Floodmark's user read and write the files and their folder.")

    def parse_condition(self, where: str, table: TableName) -> str:
        raise self._lacks("rows of a table cannot be chosen by a condition")


@dataclass(frozen=True)
class EventStreamSourceWiring(SourceWiring):
    """A source of kind ``event_stream``."""

    kind: ClassVar[str] = "event_stream"
    method: ClassVar[str] = "change event streaming"

    def stream(self) -> StreamConnection:
        """Return the database and the topic. Raises ConfigError."""
        return stream_connection(self.conn_id, self.stream_conn_id)

    def connection_json(self) -> str:
        return self.stream().to_json()

    def name_datasets(self) -> Callable[[TablePlan], tuple[Dataset, ...]]:
        """Return the topic for changes, and the table itself for a first load."""
        topic, name_table = (self.stream().stream.dataset,), super().name_datasets()
        return lambda table: topic if table.interval else name_table(table)

    def snapshots(self) -> Source:
        from floodmark.sources.event_stream.source import EventStreamSource

        return EventStreamSource(self.stream())

    def reader(self) -> OpenReader:
        from floodmark.sources.event_stream.reader import EventReader

        found = self.stream()
        return lambda plan, end: EventReader(plan, found.database, end, found.open_stream())

    def drift(self) -> DriftSource:
        from floodmark.sources.event_stream.source import StreamDriftSource

        return StreamDriftSource()

    def drift_words(self) -> DriftWords:
        from floodmark.sources.event_stream.source import STREAM_DRIFT_WORDS

        return STREAM_DRIFT_WORDS

    def beats(self) -> StreamBeats:
        from floodmark.sources.event_stream.source import StreamBeats

        return StreamBeats(self.connection())

    def read_progress(self, watermarks: Iterable[Position], marks: Marks) -> SourceProgress:
        """Return the messages beyond the marks: positions of windows are moments."""
        from floodmark.core.progress import SourceProgress
        from floodmark.sources.event_stream.epochs import read_unread

        return SourceProgress({}, None, unread=read_unread(self.stream().open_stream(), marks))

    def diagnose(self, examined: DiagnosisInput) -> tuple[Finding, ...]:
        from floodmark.core.doctor.stream import diagnose_stream
        from floodmark.sources.event_stream.source import read_stream_facts

        instances = (table.instance for table in examined.snapshot.tables)
        tables = [instance.identity.object_id for instance in instances if instance is not None]
        return diagnose_stream(examined, read_stream_facts(self.stream(), tables, examined.marks))

    def build_grants(self, login: str, settings: PipelineSettings, snapshot: SourceSnapshot) -> str:
        from floodmark.core.doctor.stream import build_stream_grants

        return build_stream_grants(snapshot.database, login, settings.sources)


_KINDS = (CdcSourceWiring, TrackingSourceWiring, CompactSourceWiring, EventStreamSourceWiring)
SOURCES: dict[str, type[SourceWiring]] = {each.kind: each for each in _KINDS}
"""By the kind that the configuration says."""
