"""The kind ``change_tracking``: a database with change tracking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from floodmark.core.settings import DriftClass, DriftPolicy, NetSource
from floodmark.sources.kind import NO_INSTANCES, NO_JOB, NO_SNAPSHOT, NO_STREAM, KindRules, LoadAdapters
from floodmark.sources.sqlserver.kind import SqlServerKind

if TYPE_CHECKING:
    from floodmark.core.capture import HeartbeatSettings
    from floodmark.core.doctor import DiagnosisInput, Finding
    from floodmark.core.drift import DriftWords
    from floodmark.core.position import Position
    from floodmark.core.progress import SourceProgress
    from floodmark.core.schema import TableName
    from floodmark.core.settings import PipelineSettings
    from floodmark.core.snapshot import SourceSnapshot
    from floodmark.sources.kind import Marks
    from floodmark.sync.ports import OpenReader, Source
    from floodmark.sync.records import DriftSource


@dataclass(frozen=True)
class TrackingKind(SqlServerKind):
    """A source of kind ``change_tracking``."""

    name: ClassVar[str] = "change_tracking"
    method: ClassVar[str] = "SQL Server Change Tracking"
    rules: ClassVar[KindRules] = KindRules(
        source={
            "stream_conn_id": NO_STREAM,
            "heartbeat": "each transaction records its changes itself",
            "capture": "there is no capture job",
            "retention": "there is no cleanup job that Floodmark could change; set the retention by ALTER DATABASE ..."
            " SET CHANGE_TRACKING (CHANGE_RETENTION = ...)",
        },
        pipeline={
            "net": "the server always computes net changes",
            "partitions": "one statement reads the changes of a table",
            "lag_limit": NO_JOB,
            "backfill": NO_INSTANCES,
        },
        table={
            "capture_instance": NO_INSTANCES,
            "before_images": "change tracking has no row before an update",
        },
        styles={
            "snapshot": {"style": NO_SNAPSHOT},
            "log": {
                "where": "nothing shows whether a row had passed the filter, and the log would have the key of each"
            },
        },
        drift={"unknown": "the server keeps no history of DDL"},
        policies={"propose": NO_INSTANCES},
        net=NetSource.SERVER,
        drift_defaults={DriftClass.COLUMN_ADDED: DriftPolicy.ALERT},
    )

    def snapshots(self) -> Source:
        from floodmark.sources.change_tracking.source import TrackingSource

        return TrackingSource(self.database())

    def list_tables(self) -> Sequence[TableName]:
        from floodmark.sources.sqlserver.driver import read_table_names

        return read_table_names(self.database(), "list_tracked_tables")

    def reader(self) -> OpenReader:
        from floodmark.sources.change_tracking.reader import TrackingReader

        connection = self.database()
        return lambda plan, end: TrackingReader(plan, connection, end)

    @classmethod
    def load_adapters(cls) -> LoadAdapters:
        from floodmark.sources.change_tracking.reader import open_tracking_reader, plan_tracking_reads
        from floodmark.sources.change_tracking.source import TrackingSource
        from floodmark.sources.sqlserver.driver import SqlServerConnection
        from floodmark.sources.sqlserver.login import executor_variables

        return LoadAdapters(
            SqlServerConnection, TrackingSource, open_tracking_reader, plan_tracking_reads, executor_variables
        )

    def drift(self) -> DriftSource:
        from floodmark.sources.change_tracking.source import TrackingDriftSource

        return TrackingDriftSource(self.database())

    def drift_words(self) -> DriftWords:
        from floodmark.sources.change_tracking.source import TRACKING_DRIFT_WORDS

        return TRACKING_DRIFT_WORDS

    def read_progress(self, watermarks: Iterable[Position], marks: Marks) -> SourceProgress:
        from floodmark.sources.change_tracking.source import read_progress

        return read_progress(self.database(), watermarks)

    def diagnose(self, examined: DiagnosisInput, read_marks: Callable[[], Marks]) -> tuple[Finding, ...]:
        from floodmark.sources.change_tracking.doctor import diagnose_tracking
        from floodmark.sources.change_tracking.source import read_tracking_facts

        return diagnose_tracking(examined, read_tracking_facts(self.database()))

    def build_grants(
        self, login: str, settings: PipelineSettings, snapshot: SourceSnapshot, heartbeat: HeartbeatSettings | None
    ) -> str:
        from floodmark.sources.change_tracking.doctor import build_tracking_grants

        return build_tracking_grants(snapshot.database, login, settings.sources)
