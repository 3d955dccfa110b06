"""The kind ``cdc``: a database with change data capture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from floodmark.sources.kind import NO_STREAM, KindRules, LoadAdapters
from floodmark.sources.sqlserver.kind import SqlServerKind

if TYPE_CHECKING:
    from datetime import datetime

    from floodmark.core.capture import HeartbeatSettings
    from floodmark.core.doctor import DiagnosisInput, Finding
    from floodmark.core.drift import DriftWords
    from floodmark.core.position import Position
    from floodmark.core.progress import SourceProgress
    from floodmark.core.schema import TableName
    from floodmark.core.settings import PipelineSettings
    from floodmark.core.snapshot import SourceSnapshot
    from floodmark.sources.cdc.operations import SqlServerJobs, SqlServerRetention
    from floodmark.sources.cdc.source import SqlServerInstances
    from floodmark.sources.kind import Marks
    from floodmark.sync.ports import OpenReader, Source
    from floodmark.sync.records import DriftSource
    from floodmark.sync.replay import ReplaySource


@dataclass(frozen=True)
class CdcKind(SqlServerKind):
    """A source of kind ``cdc``."""

    name: ClassVar[str] = "cdc"
    method: ClassVar[str] = "SQL Server's own change data capture"
    rules: ClassVar[KindRules] = KindRules(
        source={"stream_conn_id": NO_STREAM, "heartbeat": "its heartbeat is capture.heartbeat"},
        table={"key_spelling": "the changes have both spellings of a key"},
    )
    has_instances: ClassVar[bool] = True
    has_history: ClassVar[bool] = True
    has_log: ClassVar[bool] = True

    def snapshots(self) -> Source:
        from floodmark.sources.cdc.source import SqlServerSource

        return SqlServerSource(self.database())

    def list_tables(self) -> Sequence[TableName]:
        from floodmark.sources.sqlserver.driver import read_table_names

        return read_table_names(self.database(), "list_captured_tables")

    def reader(self) -> OpenReader:
        from floodmark.sources.cdc.reader import CdcReader

        connection = self.database()
        return lambda plan, end: CdcReader(plan, connection, end)

    def replays(self) -> ReplaySource:
        from floodmark.sources.cdc.operations import SqlServerReplaySource

        return SqlServerReplaySource(self.database())

    @classmethod
    def load_adapters(cls) -> LoadAdapters:
        from floodmark.sources.cdc.reader import open_cdc_reader, plan_cdc_reads
        from floodmark.sources.cdc.source import SqlServerSource
        from floodmark.sources.sqlserver.driver import SqlServerConnection
        from floodmark.sources.sqlserver.login import executor_variables

        return LoadAdapters(SqlServerConnection, SqlServerSource, open_cdc_reader, plan_cdc_reads, executor_variables)

    def drift(self) -> DriftSource:
        from floodmark.sources.cdc.operations import SqlServerDriftSource

        return SqlServerDriftSource(self.database())

    def drift_words(self) -> DriftWords:
        from floodmark.core.drift import CDC_DRIFT_WORDS

        return CDC_DRIFT_WORDS

    def instances(self) -> SqlServerInstances:
        from floodmark.sources.cdc.source import SqlServerInstances

        return SqlServerInstances(self.database())

    def jobs(self) -> SqlServerJobs:
        from floodmark.sources.cdc.operations import SqlServerJobs

        return SqlServerJobs(self.database())

    def retention(self) -> SqlServerRetention:
        from floodmark.sources.cdc.operations import SqlServerRetention

        return SqlServerRetention(self.database())

    def read_state(self, table: TableName, name: str | None) -> str:
        from floodmark.sources.cdc.source import read_state

        return read_state(self.database(), table, name)

    def read_commit_time(self, position: Position) -> datetime | None:
        from floodmark.sources.cdc.reader import read_commit_time

        return read_commit_time(self.database(), position)

    def read_progress(self, watermarks: Iterable[Position], marks: Marks) -> SourceProgress:
        from floodmark.sources.cdc.source import read_progress

        return read_progress(self.database(), watermarks)

    def diagnose(self, examined: DiagnosisInput, read_marks: Callable[[], Marks]) -> tuple[Finding, ...]:
        from floodmark.sources.cdc.doctor import diagnose
        from floodmark.sources.cdc.source import read_facts

        return diagnose(examined, read_facts(self.database()))

    def examine_heartbeat(self, source: str, table: TableName | None) -> Iterable[Finding]:
        from floodmark.sources.cdc.doctor import examine_heartbeat

        return () if table is None else (examine_heartbeat(self.jobs(), table),)

    def build_grants(
        self, login: str, settings: PipelineSettings, snapshot: SourceSnapshot, heartbeat: HeartbeatSettings | None
    ) -> str:
        from floodmark.sources.cdc.doctor import build_grants, list_read_tables
        from floodmark.sources.cdc.source import read_facts

        facts = read_facts(self.database())
        return build_grants(facts.database, login, list_read_tables(settings, snapshot), facts.roles)
