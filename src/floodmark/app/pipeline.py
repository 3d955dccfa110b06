"""The composition: a configuration and its pipelines, with the adapters for Airflow's connections and the environment.

Only this module and the load job's entry point name adapters. A module of adapters takes from 0.1 to 7 seconds to
import (psycopg, pyarrow, mssql-python; Great Expectations is the slowest), and every DAG file and every command imports
this module: adapters are imported in the property that creates them. The same is true of Airflow's SDK (two seconds),
which is needed when a connection is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import floodmark
from floodmark.app.alerts import ConnectedChannel, alert_links
from floodmark.app.connections import lake_folder, lake_registry, read_mask_key, spark_target, warehouse_connection
from floodmark.core.alerts import LAKE
from floodmark.core.columns import has_hash
from floodmark.core.definition import with_fingerprints
from floodmark.core.errors import ConfigError, FloodmarkError, WarehouseUnavailableError
from floodmark.core.schema import LEDGER_SCHEMA, STAGING_SCHEMA, TableName, file_dataset, table_dataset
from floodmark.core.settings import (
    KIND_VARIABLE,
    LEDGER_VARIABLE,
    MASK_KEYS_VARIABLE,
    SOURCE_VARIABLE,
    WAREHOUSE_KIND_VARIABLE,
    WAREHOUSE_VARIABLE,
)
from floodmark.sources.kind import SourceKind, find_kind
from floodmark.spark.launch.jars import lake_environment
from floodmark.sync.alerts import AlertNotes, AlertService
from floodmark.sync.drift_watch import DriftWatch, WatchedSource
from floodmark.sync.ports import LoggedProgress, Metrics, Progress
from floodmark.sync.sessions import kept_sessions

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from floodmark.config.models import Config, PipelineConfig
    from floodmark.core.doctor import LakeAccess, WarehouseAccess
    from floodmark.core.schema import Dataset
    from floodmark.core.settings import PipelineSettings, TableSettings
    from floodmark.core.types import WarehouseType
    from floodmark.iceberg.folder import LakeFolder
    from floodmark.iceberg.lake import LakeCatalog
    from floodmark.iceberg.metadata import LakeTable
    from floodmark.iceberg.registry import Registry
    from floodmark.iceberg.release import LakeQuarantine
    from floodmark.iceberg.targets import LakeTargets
    from floodmark.iceberg.upkeep import LakeUpkeep
    from floodmark.iceberg.warehouse import IcebergWarehouse
    from floodmark.postgres.ledger.drift import PostgresDriftLedger
    from floodmark.postgres.ledger.ledger import PostgresLedger, PostgresUpkeepLedger
    from floodmark.postgres.ledger.status import PostgresAlertLedger, PostgresMarkLedger, PostgresStatusLedger
    from floodmark.postgres.session import WarehouseConnection
    from floodmark.postgres.warehouse.adoption import PostgresAdoption
    from floodmark.postgres.warehouse.forget import PostgresEraser
    from floodmark.postgres.warehouse.history import PostgresVersions
    from floodmark.postgres.warehouse.release import PostgresQuarantine
    from floodmark.postgres.warehouse.verify import PostgresRowComparer
    from floodmark.postgres.warehouse.views import PostgresTargets
    from floodmark.quality.great_expectations import DataDocs
    from floodmark.sources.kind import PortableConnection
    from floodmark.spark.lake_session import LakeSpark
    from floodmark.sync.alerts import AlertNotes, Alerts, Channel
    from floodmark.sync.ports import Quality, Warehouse

# --------------------------------------------------------------------------------------------------------------------
# ``App``: the configuration of one command or task, and what its pipelines share.


@dataclass(frozen=True, eq=False)
class App:
    """A configuration with its pipelines, its ledger and its warehouse.

    Each adapter is made when it is first needed, and kept. A connection of Airflow is read once, and no server is
    reached before an adapter is used. A process that lives longer than a command or a task makes an ``App`` for each
    request: the configuration and the connections may change. Adapters raise ConfigError where a connection is wrong.
    """

    config: Config
    notes: AlertNotes = field(default_factory=AlertNotes)
    """Records which channels were notified while the ledger cannot be reached."""
    metrics: Metrics = field(default_factory=Metrics)
    progress: Progress = field(default_factory=LoggedProgress)
    """Receives the progress of reads that take long."""

    @cached_property
    def pipelines(self) -> Mapping[str, Pipeline]:
        """The pipelines by name."""
        return {name: Pipeline(self, name, config) for name, config in self.config.pipelines.items()}

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline. Raises ConfigError for one that is not in the configuration."""
        self.config.pipeline(name)
        return self.pipelines[name]

    def pipelines_of(self, source: str) -> list[Pipeline]:
        """Return the pipelines that read a source."""
        return [each for each in self.pipelines.values() if each.config.source == source]

    def source(self, name: str, conn_id: str | None = None) -> SourceKind:
        """Return a source of the configuration. conn_id: of its upkeep, where it is another one."""
        found = self.config.sources[name]
        kind = find_kind(found.kind)
        return kind(conn_id or found.conn_id, **{key: getattr(found, key) for key in kind.rules.required})

    @cached_property
    def channels(self) -> Sequence[Channel]:
        """The channels of alerts besides the log."""
        return [ConnectedChannel(channel) for channel in self.config.alerts.channels]

    @cached_property
    def alerts(self) -> Alerts:
        """The alerts about the sources and pipelines of the configuration."""
        subjects = {*self.config.pipelines, *self.config.sources, LAKE}
        links = partial(alert_links, self.config)
        return AlertService(lambda: self.alert_ledger, self.channels, self.notes, subjects, links=links)

    @cached_property
    def ledger_connection(self) -> WarehouseConnection:
        """The connection of the ledger: by default that of the warehouse."""
        own = self.config.ledger
        return warehouse_connection(own.conn_id) if own else self.warehouse_connection

    @cached_property
    def ledger(self) -> PostgresLedger:
        from floodmark.postgres.ledger.ledger import PostgresLedger

        return PostgresLedger(self.ledger_connection)

    @cached_property
    def alert_ledger(self) -> PostgresAlertLedger:
        from floodmark.postgres.ledger.status import PostgresAlertLedger

        return PostgresAlertLedger(self.ledger_connection)

    @cached_property
    def drift_ledger(self) -> PostgresDriftLedger:
        from floodmark.postgres.ledger.drift import PostgresDriftLedger

        return PostgresDriftLedger(self.ledger_connection)

    @cached_property
    def stop_ledger(self) -> PostgresUpkeepLedger:
        from floodmark.postgres.ledger.ledger import PostgresUpkeepLedger

        return PostgresUpkeepLedger(self.ledger_connection)

    @cached_property
    def mark_ledger(self) -> PostgresMarkLedger:
        from floodmark.postgres.ledger.status import PostgresMarkLedger

        return PostgresMarkLedger(self.ledger_connection)

    @cached_property
    def status_ledger(self) -> PostgresStatusLedger:
        from floodmark.postgres.ledger.status import PostgresStatusLedger

        return PostgresStatusLedger(self.ledger_connection)

    @property
    def is_lake(self) -> bool:
        """Return whether the targets are Iceberg tables."""
        return self.config.warehouse.kind == "iceberg"

    def require_postgres(self, what: str) -> None:
        """Raise ConfigError, which names ``what``, where the targets are Iceberg tables."""
        if self.is_lake:
            raise ConfigError(
                "warehouse",
                f"{what} is not supported for kind iceberg so far.",
                'See docs/lakehouse.md, "What is refused".',
            )

    @cached_property
    def lake(self) -> LakeFolder:
        """The folder of the lake."""
        return lake_folder(self.config.warehouse.conn_id)

    @cached_property
    def lake_catalog(self) -> LakeCatalog:
        """The catalog of the lake."""
        from floodmark.iceberg.lake import LakeCatalog

        return LakeCatalog(self.ledger_connection, self.lake)

    @cached_property
    def lake_registry(self) -> Registry | None:
        """The REST catalog of readers; None where the configuration names none."""
        conn_id = self.config.warehouse.catalog_conn_id
        return lake_registry(conn_id) if conn_id else None

    def register_tables(self, targets: Sequence[TableName]) -> Sequence[TableName]:
        """Register tables in the REST catalog of readers, where there is one. Return those that were elsewhere.

        Raises from ``core.errors``.
        """
        return self.lake_registry.register(self.lake_catalog, targets) if self.lake_registry else ()

    @cached_property
    def lake_spark(self) -> LakeSpark:
        """The Spark of this process that checks, compares and keeps the tables of the lake."""
        from floodmark.spark.lake_session import LakeSpark

        return LakeSpark(spark_target, s3=self.lake.bucket is not None)

    @cached_property
    def warehouse_connection(self) -> WarehouseConnection:
        """The warehouse's PostgreSQL. Raises ConfigError for a lake, of whose rows PostgreSQL has none."""
        self.require_postgres("what reads targets by PostgreSQL")
        return warehouse_connection(self.config.warehouse.conn_id)

    @cached_property
    def warehouse(self) -> Warehouse:
        """The warehouse, in whose database the ledger must be: a merge and its record are one transaction."""
        if self.is_lake:
            return self.iceberg
        from floodmark.postgres.warehouse.warehouse import PostgresWarehouse

        connection, ledger = self.warehouse_connection, self.ledger_connection
        place, ledger_place = (f"{each.host}:{each.port}/{each.database}" for each in (connection, ledger))
        if self.config.ledger and place != ledger_place:
            raise ConfigError(
                f"connection {self.config.ledger.conn_id}",
                f"the ledger is in {ledger_place}, and the warehouse in {place}.",
                "A warehouse of kind postgres keeps the ledger in its own database: name that one, or omit ledger.",
            )
        return PostgresWarehouse(connection)

    @cached_property
    def iceberg(self) -> IcebergWarehouse:
        """The warehouse of kind iceberg."""
        from floodmark.iceberg.warehouse import IcebergWarehouse

        return IcebergWarehouse(self.lake, self.ledger_connection, self.lake_spark.open)

    @cached_property
    def lake_upkeep(self) -> LakeUpkeep:
        """The upkeep of the lake. Raises ConfigError where the targets are no Iceberg tables."""
        from floodmark.iceberg.upkeep import LakeUpkeep

        if not self.is_lake:
            raise ConfigError("warehouse", "its kind is postgres, and only one of kind iceberg is a lake.")
        return LakeUpkeep(self.iceberg, self.lake_spark.close, self.register_tables)

    @cached_property
    def lake_quarantine(self) -> LakeQuarantine:
        from floodmark.iceberg.release import LakeQuarantine

        return LakeQuarantine(self.iceberg, self.lake_spark.close)

    def read_lake_table(self, target: TableName) -> LakeTable | None:
        """Return what readers of the lake see of a target; None for another warehouse, or where it cannot be read."""
        if not self.is_lake:
            return None
        from floodmark.iceberg.metadata import read_lake

        try:
            return next(read_lake(self.lake_catalog, [target]), None)
        except WarehouseUnavailableError:
            return None

    @cached_property
    def targets(self) -> PostgresTargets | LakeTargets:
        if self.is_lake:
            from floodmark.iceberg.targets import LakeTargets

            return LakeTargets(self.lake_catalog)
        from floodmark.postgres.warehouse.views import PostgresTargets

        return PostgresTargets(self.warehouse_connection)

    @cached_property
    def adoption(self) -> PostgresAdoption:
        from floodmark.postgres.warehouse.adoption import PostgresAdoption

        return PostgresAdoption(self.warehouse_connection)

    @cached_property
    def quarantine(self) -> PostgresQuarantine:
        from floodmark.postgres.warehouse.release import PostgresQuarantine

        return PostgresQuarantine(self.ledger_connection if self.is_lake else self.warehouse_connection)

    @cached_property
    def eraser(self) -> PostgresEraser:
        from floodmark.postgres.warehouse.forget import PostgresEraser

        return PostgresEraser(self.warehouse_connection)

    @cached_property
    def versions(self) -> PostgresVersions:
        from floodmark.postgres.warehouse.history import PostgresVersions

        return PostgresVersions(self.warehouse_connection)

    @cached_property
    def row_comparer(self) -> PostgresRowComparer:
        from floodmark.postgres.warehouse.verify import PostgresRowComparer

        if self.is_lake:
            return PostgresRowComparer(self.ledger_connection, self.iceberg.read_rows)
        return PostgresRowComparer(self.warehouse_connection)

    def read_access(self, targets: Iterable[TableName], deleted: Collection[TableName]) -> Iterator[WarehouseAccess]:
        """Yield what the user of the warehouse may do with targets, and that of the ledger with the ledger.

        deleted: the targets of which rows are deleted. Raises the error of a connection.
        """
        from floodmark.postgres.session import read_access

        own = [TableName(LEDGER_SCHEMA, "windows"), TableName(LEDGER_SCHEMA, ""), TableName(STAGING_SCHEMA, "")]
        if self.is_lake:
            from floodmark.iceberg.lake import CATALOG_SCHEMA

            yield read_access(self.ledger_connection, [*own, TableName(CATALOG_SCHEMA, "")])
        elif self.ledger_connection == self.warehouse_connection:
            yield read_access(self.warehouse_connection, [*own, *targets], deleted)
        else:
            yield read_access(self.ledger_connection, own)
            yield read_access(self.warehouse_connection, targets, deleted)

    def read_lake_access(self, targets: Sequence[TableName]) -> LakeAccess:
        """Return what a run would find of the lake. Raises the error of a connection."""
        from floodmark.core.doctor import LakeAccess
        from floodmark.iceberg.metadata import list_lost

        jars = None
        try:
            lake_environment(s3=self.lake.bucket is not None)
        except ConfigError as error:
            jars = error
        refused = self.lake.find_refused()
        known, lost = (0, {}) if refused else list_lost(self.lake_catalog, targets)
        registry, behind = self._read_registry(targets if known and not lost else ())
        return LakeAccess(self.lake.tables, refused, jars, known, lost, registry, behind)

    def _read_registry(self, targets: Sequence[TableName]) -> tuple[str, Sequence[TableName] | FloodmarkError]:
        conn_id = self.config.warehouse.catalog_conn_id
        try:
            found = self.lake_registry.list_behind(self.lake_catalog, targets) if self.lake_registry else ()
        except FloodmarkError as error:
            return f"catalog {conn_id}", error
        return f"catalog {conn_id}" if conn_id else "", found

    def name_target(self, target: TableName) -> Dataset:
        """Return the name of a target in lineage."""
        if self.is_lake:
            return file_dataset(f"{self.lake.tables}/{target.schema}/{target.name}")
        at = self.warehouse_connection
        return table_dataset("postgres", at.host, at.port, at.database, target)

    def name_type(self, kind: WarehouseType) -> str:
        """Return the warehouse's own name of a type."""
        if self.is_lake:
            from floodmark.iceberg.tables import lake_type

            return lake_type(kind)
        from floodmark.postgres.warehouse.targets import postgres_type

        return postgres_type(kind)


# --------------------------------------------------------------------------------------------------------------------
# ``Pipeline``: one pipeline of a configuration.


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A pipeline with its settings and adapters, which are made and kept like those of its ``App``."""

    app: App
    name: str
    config: PipelineConfig

    @cached_property
    def settings(self) -> PipelineSettings:
        """The settings, with the tables that patterns have brought so far: the ledger has them."""
        return self.settings_with(self._taken())

    def settings_with(self, taken: Sequence[TableName]) -> PipelineSettings:
        """Return the settings. taken: the tables that patterns have brought."""
        return with_fingerprints(self.app.config.settings(self.name, taken), read_mask_key)

    @cached_property
    def named_settings(self) -> PipelineSettings:
        """The settings of the tables with an entry of their own: what is known without a server."""
        return self.app.config.settings(self.name)

    def _taken(self) -> Sequence[TableName]:
        if not self.config.patterns:
            return ()
        return self.app.config.patterns_of(self.name).list_taken(self.ledger.list_pattern_tables(self.name))

    def forget_settings(self) -> None:
        """Read the settings again when they are next used: the ledger has other tables now."""
        for kept in ("settings", "watched", "drift_watch"):
            vars(self).pop(kept, None)

    @cached_property
    def source(self) -> SourceKind:
        return self.app.source(self.config.source)

    @property
    def ledger(self) -> PostgresLedger:
        return self.app.ledger

    @property
    def warehouse(self) -> Warehouse:
        return self.app.warehouse

    @property
    def alerts(self) -> Alerts:
        return self.app.alerts

    @cached_property
    def quality(self) -> Quality:
        """The checks of windows."""
        if self.app.is_lake:
            from floodmark.iceberg.checks import IcebergQuality

            return IcebergQuality(self.app.iceberg, self.app.lake_spark.close)
        from floodmark.postgres.url import sqlalchemy_url
        from floodmark.quality.great_expectations import GreatExpectationsQuality

        return GreatExpectationsQuality(
            sqlalchemy_url(self.app.warehouse_connection),
            self.warehouse.open_rows,
            data_docs_dir(),
            freshness_seconds=self.config.freshness.total_seconds(),
        )

    @cached_property
    def data_docs(self) -> DataDocs:
        """The reports on the checks, in the folder of this machine."""
        from floodmark.quality.great_expectations import DataDocs

        return DataDocs(data_docs_dir())

    @cached_property
    def watched(self) -> WatchedSource:
        """The source with all pipelines that read it, for its drift."""
        return WatchedSource(
            self.config.source,
            [each.settings for each in self.app.pipelines_of(self.config.source)],
            self.source.drift,
            self.app.drift_ledger,
            self.alerts,
            self.source.drift_words(),
        )

    @cached_property
    def drift_watch(self) -> DriftWatch:
        """The drift watch of the source, for all pipelines that read it."""
        return DriftWatch(self.watched, self.warehouse.drop_staging)

    def kept_sessions(self) -> AbstractContextManager[None]:
        """Use one session for the transactions of one step, until the block ends."""
        return kept_sessions()

    def job_secrets(self) -> Mapping[str, str]:
        """Return the kind of the source, and connections as JSON with their passwords, by the load job's variables."""
        warehouse: PortableConnection = self.app.lake if self.app.is_lake else self.app.warehouse_connection
        return {
            KIND_VARIABLE: self.source.name,
            SOURCE_VARIABLE: self.source.connection().to_json(),
            LEDGER_VARIABLE: self.app.ledger_connection.to_json(),
            WAREHOUSE_KIND_VARIABLE: self.app.config.warehouse.kind,
            WAREHOUSE_VARIABLE: warehouse.to_json(),
            MASK_KEYS_VARIABLE: json.dumps(self.mask_keys()),
            **(lake_environment(s3=self.app.lake.bucket is not None) if self.app.is_lake else {}),
        }

    def mask_keys(self) -> Mapping[str, str]:
        """Return the secrets of masks, by their connections. Raises ConfigError where one is wrong."""
        conn_ids = {table.mask_key_conn_id for table in self.settings.tables if has_hash(table)}
        return {conn_id: read_mask_key(conn_id) for conn_id in sorted(filter(None, conn_ids))}

    def find_table(self, table: str) -> TableSettings:
        """Return the settings of a table. table: its name at the source. Raises ConfigError for an unknown one."""
        name = self.parse_table(table)
        tables = self.settings.tables
        # The exact name comes first: where the collation is case-sensitive, another table may have the other one.
        for settings in sorted(tables, key=lambda each: each.source != name):
            if settings.source.folded == name.folded:
                return settings
        raise ConfigError(
            self.name, f"it has no table {table}.", f"Its tables: {', '.join(str(each.source) for each in tables)}."
        )

    def parse_table(self, table: str) -> TableName:
        """Return a name that an operator wrote. Raises ConfigError."""
        try:
            return TableName.parse(table)
        except ValueError as error:
            raise ConfigError(self.name, f"{error}.") from None


# --------------------------------------------------------------------------------------------------------------------
# The locations of the configuration and the data docs, from the environment or by default.


CONFIG_VARIABLE = "FLOODMARK_CONFIG"
DATA_DOCS_VARIABLE = "FLOODMARK_DATA_DOCS"
_DEFAULT_CONFIG = Path("include", "pipelines.yaml")


def config_path() -> Path:
    """Return the path in FLOODMARK_CONFIG, else ``include/pipelines.yaml``.

    The default is that of the clone from which this package is installed; for a wheel, that of the working directory.
    """
    if chosen := os.environ.get(CONFIG_VARIABLE):
        return Path(chosen).resolve()
    of_clone = Path(floodmark.__file__).resolve().parents[2] / _DEFAULT_CONFIG
    return of_clone if of_clone.is_file() else _DEFAULT_CONFIG.resolve()


def check_expectations(path: Path, config: Config) -> None:
    """Raise the errors of ``refuse_arguments``. It imports Great Expectations, which takes seconds."""
    if any(table.expectations for pipeline in config.pipelines.values() for table in pipeline.tables):
        from floodmark.quality.expectations import refuse_arguments

        refuse_arguments(path, config)


def data_docs_dir() -> Path:
    """Return the path in FLOODMARK_DATA_DOCS, else a folder of the user's state. It may not be writable."""
    chosen = os.environ.get(DATA_DOCS_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    state = os.environ.get("XDG_STATE_HOME")
    try:
        return Path(state or Path.home() / ".local" / "state", "floodmark", "data_docs")
    except RuntimeError:  # The user has no home, as in a container.
        return Path("/nonexistent/floodmark/data_docs")
