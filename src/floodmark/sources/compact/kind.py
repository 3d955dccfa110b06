"""The kind ``compact``: a fleet of devices with a database each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from floodmark.airflow_connections import read_connection, read_extras, read_flag, required_field
from floodmark.core.errors import ConfigError
from floodmark.core.schema import Dataset, file_dataset
from floodmark.core.settings import DriftClass, DriftPolicy, NetSource
from floodmark.sources.kind import (
    NO_INSTANCES,
    NO_JOB,
    NO_SNAPSHOT,
    NO_STREAM,
    KindRules,
    LoadAdapters,
    SourceKind,
)

if TYPE_CHECKING:
    from floodmark.core.capture import HeartbeatSettings
    from floodmark.core.doctor import DiagnosisInput, Finding
    from floodmark.core.drift import DriftWords
    from floodmark.core.plan import TablePlan
    from floodmark.core.position import Position
    from floodmark.core.progress import SourceProgress
    from floodmark.core.schema import TableName
    from floodmark.core.settings import PipelineSettings
    from floodmark.core.snapshot import SourceSnapshot
    from floodmark.sources.compact.reader import Fleet
    from floodmark.sources.kind import Marks
    from floodmark.sync.ports import OpenReader, Source
    from floodmark.sync.records import DriftSource

_LIBRARY = "compact_tracking"
_EXTRAS = ("path", "paths", "shipped", "consumer", "purge_after_days")


@dataclass(frozen=True)
class CompactKind(SourceKind):
    """A source of kind ``compact``."""

    name: ClassVar[str] = "compact"
    method: ClassVar[str] = "the tracking in the files of devices"
    rules: ClassVar[KindRules] = KindRules(
        source={
            "stream_conn_id": NO_STREAM,
            "heartbeat": "each transaction records its changes itself",
            "capture": "there is no capture job",
            "retention": "there is no cleanup job; set purge_after_days in the connection's extra",
        },
        pipeline={
            "commit_times": "clocks of devices are not asked, and __loaded_at has the time of the run",
            "net": "each device always computes net changes",
            "partitions": "each device is read by itself",
            "lag_limit": NO_JOB,
            "backfill": NO_INSTANCES,
            "first_load": "a device that was not read before is read as a whole, with the changes of the others",
        },
        table={
            "capture_instance": NO_INSTANCES,
            "key": "a row is known by its device and the table's own key",
            "key_spelling": "the changes have both spellings of a key",
            "security_filtered": "a file has no security policies",
            "before_images": "a device keeps no row before an update",
        },
        styles={
            "snapshot": {"style": NO_SNAPSHOT},
            "log": {
                "where": "nothing shows whether a row had passed the filter, and the log would have the key of each"
            },
        },
        drift={"unknown": "a file keeps no history of DDL"},
        policies={"propose": NO_INSTANCES},
        patterns="devices may have different tables, so each is named",
        net=NetSource.SERVER,
        drift_defaults={DriftClass.COLUMN_ADDED: DriftPolicy.ALERT},
    )

    def connection(self) -> Fleet:
        """Return an Airflow connection of type fs: the folder of the devices' files.

        Extras: path (a folder, or a pattern such as /data/*.db) or paths (a list of them), shipped, consumer,
        purge_after_days. Raises ConfigError.
        """
        _require_edge()
        from floodmark.sources.compact.reader import DEFAULT_CONSUMER, Fleet

        extras = read_extras(read_connection(self.conn_id, "fs"), self.conn_id, _EXTRAS)
        paths = extras.get("paths") or [required_field(extras.get("path"), self.conn_id, "path in its extra")]
        try:
            return Fleet(
                paths=(paths,) if isinstance(paths, str) else tuple(map(str, paths)),
                is_shipped=read_flag(extras.get("shipped", False), self.conn_id, "shipped"),
                consumer=str(extras.get("consumer") or DEFAULT_CONSUMER),
                purge_after_days=int(extras.get("purge_after_days", 30)),
            )
        except ValueError as error:
            raise ConfigError(f"connection {self.conn_id}", f"{error}.", "Correct its extra.") from None

    def encryption(self) -> tuple[str, bool]:
        """Return that nothing is left to encrypt: files are read."""
        return "yes", False

    def name_datasets(self) -> Callable[[TablePlan], tuple[Dataset, ...]]:
        """Return the paths of the fleet for every table: a file has all of them."""
        files = tuple(map(file_dataset, self.connection().paths))
        return lambda table: files

    def snapshots(self) -> Source:
        fleet = self.connection()
        from floodmark.sources.compact.source import CompactSource

        return CompactSource(fleet)

    def reader(self) -> OpenReader:
        fleet = self.connection()
        from floodmark.sources.compact.reader import CompactReader

        return lambda plan, end: CompactReader(plan, fleet, end)

    @classmethod
    def load_adapters(cls) -> LoadAdapters:
        _require_edge()
        from floodmark.sources.compact.reader import Fleet, open_compact_reader, plan_compact_reads
        from floodmark.sources.compact.source import CompactSource

        return LoadAdapters(Fleet, CompactSource, open_compact_reader, plan_compact_reads)

    def drift(self) -> DriftSource:
        """Return no rows at risk: every column of every device is read."""
        from floodmark.core.drift import RowsAtRisk
        from floodmark.sync.records import SnapshotDrift

        return SnapshotDrift(RowsAtRisk(0, 0))

    def drift_words(self) -> DriftWords:
        _require_edge()
        from floodmark.sources.compact.source import COMPACT_DRIFT_WORDS

        return COMPACT_DRIFT_WORDS

    def read_progress(self, watermarks: Iterable[Position], marks: Marks) -> SourceProgress:
        """Return no numbers: how many changes the devices have is known when their files are read."""
        from floodmark.core.progress import SourceProgress

        return SourceProgress({}, None)

    def diagnose(self, examined: DiagnosisInput, read_marks: Callable[[], Marks]) -> tuple[Finding, ...]:
        fleet = self.connection()
        from floodmark.sources.compact.source import diagnose_fleet, read_fleet_facts

        return diagnose_fleet(examined, read_fleet_facts(fleet, examined.settings.sources))

    def build_grants(
        self, login: str, settings: PipelineSettings, snapshot: SourceSnapshot, heartbeat: HeartbeatSettings | None
    ) -> str:
        raise self._lacks("a file has no logins", "Let Floodmark's user read and write the files and their folder.")

    def parse_condition(self, where: str, table: TableName, hidden: Collection[str] = ()) -> str:
        raise self._lacks("rows of a table cannot be chosen by a condition")


def _require_edge() -> None:
    """Raise ConfigError where the library of edge databases is not installed: it is an extra of the package."""
    if find_spec(_LIBRARY) is None:
        raise ConfigError(
            "sources of kind compact",
            "the package compact-tracking is not installed.",
            "Install it wherever they are read: pip install 'floodmark[edge]'.",
        )
