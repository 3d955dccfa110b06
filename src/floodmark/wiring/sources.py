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
    """A source of kind ``cdc``. No connection is opened before an adapter is used."""

    conn_id: str
    """The id of the connection in Airflow."""

    def connection(self) -> SqlServerConnection:
        """Return the connection. Raises ConfigError."""
        return source_connection(self.conn_id)

    def snapshots(self) -> Source:
        from floodmark.sources.cdc.source import SqlServerSource

        return SqlServerSource(self.connection())

    def reader(self) -> OpenReader:
        """Return the factory of readers of tables for this process."""
        from floodmark.sources.cdc.rows.change_reader import CdcReader

        connection = self.connection()
        return lambda plan, end: CdcReader(plan, connection, end)

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
        """Return an operator's condition in T-SQL. Raises ConfigError if it is not one condition on the table."""
        from floodmark.sources.sqlserver.condition import parse_condition

        return parse_condition(where, table)

    def read_progress(self, watermarks: Iterable[Lsn]) -> SourceProgress:
        """Return the progress of the source beyond the watermarks."""
        from floodmark.sources.cdc.progress import read_progress

        return read_progress(self.connection(), watermarks)

    def read_facts(self) -> ServerFacts:
        """Return the facts about the server for a diagnosis."""
        from floodmark.sources.cdc.facts import read_facts

        return read_facts(self.connection())


SOURCES = {"cdc": CdcSourceWiring}
"""By the kind that the configuration says."""
