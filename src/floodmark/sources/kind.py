"""A kind of source: all that Floodmark needs to know of it, and the registry of kinds.

A module of adapters takes from 0.1 to 7 seconds to import, and every DAG file and every command imports this one: a
kind's module imports its adapters in the method that creates them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from floodmark.core.errors import ConfigError
from floodmark.core.settings import DriftClass, DriftPolicy, NetSource

if TYPE_CHECKING:
    from datetime import datetime

    from floodmark.core.capture import HeartbeatSettings
    from floodmark.core.doctor import DiagnosisInput, Finding
    from floodmark.core.drift import DriftWords
    from floodmark.core.plan import TablePlan
    from floodmark.core.position import Position
    from floodmark.core.progress import SourceProgress
    from floodmark.core.schema import Dataset, TableName
    from floodmark.core.settings import PipelineSettings
    from floodmark.core.snapshot import MemberMark, SourceSnapshot
    from floodmark.postgres.ledger.ledger import PostgresLedger
    from floodmark.sources.cdc.operations import SqlServerJobs, SqlServerRetention
    from floodmark.sources.cdc.source import SqlServerInstances
    from floodmark.sync.alerts import Alerts
    from floodmark.sync.ports import OpenReader, PlanReads, Source
    from floodmark.sync.records import DriftSource
    from floodmark.sync.replay import ReplaySource

    Marks = Mapping[TableName, Sequence[MemberMark]]

KINDS: Mapping[str, str] = {
    "cdc": "floodmark.sources.cdc.kind:CdcKind",
    "change_tracking": "floodmark.sources.change_tracking.kind:TrackingKind",
    "compact": "floodmark.sources.compact.kind:CompactKind",
    "event_stream": "floodmark.sources.event_stream.kind:EventStreamKind",
}
"""The class of each kind, by the name that the configuration says. It is imported when it is needed."""
if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[tuple(KINDS)]


def find_kind(name: str) -> type[SourceKind]:
    """Return a kind. Raises KeyError for a name that is not registered."""
    found: type[SourceKind] = resolve_name(KINDS[name])
    return found


NO_INSTANCES = "a table has no capture instances"
NO_JOB = "there is no capture job that could lag"
NO_SNAPSHOT = "only changes that change data capture has recorded begin the reads of a snapshot so far"
NO_STREAM = "its changes are not streamed"


@dataclass(frozen=True, slots=True)
class KindRules:
    """The keys of ``pipelines.yaml`` that a kind needs or refuses, with the reasons, and its defaults."""

    required: Mapping[str, str] = field(default_factory=dict)
    """Needed in a source: what each key is. The kind's class has a field for each."""
    source: Mapping[str, str] = field(default_factory=dict)
    """Refused in a source."""
    pipeline: Mapping[str, str] = field(default_factory=dict)
    """Refused in a pipeline and in its tables."""
    table: Mapping[str, str] = field(default_factory=dict)
    """Refused in a table."""
    styles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Refused in a pipeline and in its tables next to a style, by the style; ``style`` refuses the style itself."""
    drift: Mapping[str, str] = field(default_factory=dict)
    """Refused in ``drift`` of a pipeline and of a table."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """Refused as a policy for a class of drift."""
    patterns: str = ""
    """Why no table may be a pattern; "" where it may."""
    net: NetSource | None = None
    """Where net changes are computed; None: where the configuration says."""
    drift_defaults: Mapping[DriftClass, DriftPolicy] = field(default_factory=dict)
    """The defaults that differ from those of ``core.settings.ALLOWED``."""

    def of_table(self) -> Mapping[str, str]:
        """Return all keys that are refused in a table."""
        return {**self.pipeline, **self.table}


class PortableConnection(Protocol):
    """A connection that travels to other machines as JSON."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the connection that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""

    def to_json(self) -> str:
        """Return it as JSON, with its passwords: for an environment variable, never a log."""

    def portable(self) -> Self:
        """Return the connection with the contents of its files, for other machines. Raises ValueError."""

    @property
    def hosts(self) -> Mapping[str, str]:
        """Return the hosts that executors connect to, by what they are."""


@dataclass(frozen=True, slots=True)
class LoadAdapters:
    """The adapters of a kind in the load job, which has no Airflow."""

    connection: type[PortableConnection]
    snapshots: Callable[[Any], Source]
    """Takes a connection of that type."""
    open_reader: OpenReader
    plan_reads: PlanReads
    executor_variables: Callable[[Any], Sequence[str]] = lambda _connection: ()
    """Takes a connection, and returns the variables of the environment that each executor of a cluster needs for it."""


@dataclass(frozen=True)
class SourceKind(ABC):
    """A source of one kind. No connection is opened before an adapter is used.

    An adapter that a kind does not have raises ConfigError with the reason.
    """

    conn_id: str
    """The id of the connection in Airflow."""
    name: ClassVar[str]
    """The name that the configuration says."""
    method: ClassVar[str]
    """How its changes are read, in words that continue "by"."""
    rules: ClassVar[KindRules]
    has_instances: ClassVar[bool] = False
    """Whether a table may have several feeds, between which pipelines switch."""
    has_history: ClassVar[bool] = False
    """Whether every change of a past time may be read again."""
    has_log: ClassVar[bool] = False
    """Whether its positions are those of the server's log, which other tools keep too."""

    @abstractmethod
    def connection(self) -> PortableConnection:
        """Return what is read, from its Airflow connections. Raises ConfigError."""

    @abstractmethod
    def encryption(self) -> tuple[str, bool]:
        """Return how the connection is encrypted, and whether it trusts any certificate."""

    @abstractmethod
    def snapshots(self) -> Source:
        """Return the control queries of a run."""

    @abstractmethod
    def reader(self) -> OpenReader:
        """Return the factory of readers of tables for this process."""

    @classmethod
    @abstractmethod
    def load_adapters(cls) -> LoadAdapters:
        """Return the adapters of the load job."""

    @abstractmethod
    def drift(self) -> DriftSource:
        """Return the details of tables for the drift watch."""

    @abstractmethod
    def drift_words(self) -> DriftWords:
        """Return the sentences about drift."""

    @abstractmethod
    def read_progress(self, watermarks: Iterable[Position], marks: Marks) -> SourceProgress:
        """Return the progress of the source beyond the watermarks, or beyond the marks of members of tables."""

    @abstractmethod
    def name_datasets(self) -> Callable[[TablePlan], tuple[Dataset, ...]]:
        """Return the function that names what a load of a table reads. Raises ConfigError."""

    def list_tables(self) -> Sequence[TableName]:
        """Return the tables whose changes the source records, as far as the login may see them."""
        raise self._lacks("its tables cannot be listed")

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

    def read_state(self, table: TableName, name: str | None) -> str:
        """Return a state of SSIS from the table that has it. name: None for the only one."""
        raise self._lacks("there is no state of SSIS")

    def read_commit_time(self, position: Position) -> datetime | None:
        """Return the time in UTC of the newest commit up to a position; None where the source does not know it."""
        raise self._lacks("the time of a position is not to be had")

    @abstractmethod
    def diagnose(self, examined: DiagnosisInput, read_marks: Callable[[], Marks]) -> tuple[Finding, ...]:
        """Return the findings on the source and its tables.

        read_marks: returns where the members of tables were read to, as far as the ledger shows it.
        """

    def examine_login(self) -> Iterable[Finding]:
        """Return the findings on how the source is logged in to, where that needs more than a password.

        After a problem nothing else of the source can be examined.
        """
        return ()

    def examine_heartbeat(self, source: str, table: TableName | None) -> Iterable[Finding]:
        """Return the finding on the heartbeat of a source. table: that of its heartbeat; None: it has none."""
        return ()

    def keep_heartbeat(  # noqa: B027  (most kinds have none)
        self, pipeline: str, settings: HeartbeatSettings | None, ledger: Callable[[], PostgresLedger], alerts: Alerts
    ) -> None:
        """Keep the heartbeat of a stream at the end of a run. settings: None where it has none."""

    @abstractmethod
    def build_grants(
        self, login: str, settings: PipelineSettings, snapshot: SourceSnapshot, heartbeat: HeartbeatSettings | None
    ) -> str:
        """Return the script that grants a login the rights for the tables of a pipeline, and for its heartbeat.

        snapshot: what the login of the connection sees of them.
        """

    @abstractmethod
    def parse_condition(self, where: str, table: TableName, hidden: Collection[str] = ()) -> str:
        """Return an operator's condition in T-SQL. Raises ConfigError if it is not one condition on the table.

        hidden: columns whose values must be in no ledger and no log.
        """

    def _lacks(self, cause: str, hint: str = "") -> ConfigError:
        return ConfigError(f"connection {self.conn_id}", f"{cause}: the kind of the source is {self.name}.", hint)
