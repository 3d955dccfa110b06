"""The adapters of a source, by its kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.wiring.connections import source_connection

if TYPE_CHECKING:
    from floodmark.core.doctor.server_facts import ServerFacts
    from floodmark.core.lsn import Lsn
    from floodmark.core.schema import TableName
    from floodmark.core.status.progress import SourceProgress
    from floodmark.sources.sqlserver.connection import SqlServerConnection
    from floodmark.sync.ports.capture import CaptureControl
    from floodmark.sync.ports.drift import DriftSource
    from floodmark.sync.ports.reader import OpenReader
    from floodmark.sync.ports.source import Source
    from floodmark.sync.ports.switch import InstanceControl
    from floodmark.sync.recovery.replay import ReplaySource
    from floodmark.sync.upkeep.retention import RetentionControl


@dataclass(frozen=True)
class CdcSourceWiring:
    """A source of kind ``cdc``. Nothing is connected to before an adapter is asked."""

    conn_id: str
    """Of Airflow's connection."""

    def connection(self) -> SqlServerConnection:
        """Raises ConfigError."""
        return source_connection(self.conn_id)

    def snapshots(self) -> Source:
        from floodmark.sources.cdc.source import SqlServerSource

        return SqlServerSource(self.connection())

    def reader(self) -> OpenReader:
        """Return what reads the rows of a table in this process."""
        from floodmark.sources.cdc.rows.change_reader import CdcReader

        connection = self.connection()
        return lambda plan: CdcReader(plan, connection)

    def replays(self) -> ReplaySource:
        from floodmark.sources.cdc.replay import SqlServerReplaySource

        return SqlServerReplaySource(self.connection())

    def drift(self) -> DriftSource:
        from floodmark.sources.cdc.drift import SqlServerDriftSource

        return SqlServerDriftSource(self.connection())

    def instances(self) -> InstanceControl:
        from floodmark.sources.cdc.instances import SqlServerInstances

        return SqlServerInstances(self.connection())

    def jobs(self) -> CaptureControl:
        from floodmark.sources.cdc.jobs import SqlServerJobs

        return SqlServerJobs(self.connection())

    def retention(self) -> RetentionControl:
        from floodmark.sources.cdc.retention import SqlServerRetention

        return SqlServerRetention(self.connection())

    def parse_condition(self, where: str, table: TableName) -> str:
        """Return a condition in T-SQL from a person, once it is known to be one condition over the table's columns.

        Raises ConfigError.
        """
        from floodmark.sources.sqlserver.condition import parse_condition

        return parse_condition(where, table)

    def read_progress(self, watermarks: Iterable[Lsn]) -> SourceProgress:
        """Return how far the source is beyond the watermarks."""
        from floodmark.sources.cdc.progress import read_progress

        return read_progress(self.connection(), watermarks)

    def read_facts(self) -> ServerFacts:
        """Return what a diagnosis wants to know of the server."""
        from floodmark.sources.cdc.facts import read_facts

        return read_facts(self.connection())


SOURCES = {"cdc": CdcSourceWiring}
"""By the kind that the configuration says."""
