"""The shape of ``pipelines.yaml``. Unknown keys are refused, everything is frozen, and what is left out has a default:
a table takes what it does not say itself from its pipeline."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from floodmark.config.alerts import AlertsConfig
from floodmark.config.drift import DriftConfig, DriftWatchConfig, drift_policies
from floodmark.config.fields import (
    ColumnName,
    ConnectionId,
    Cron,
    Duration,
    PipelineName,
    RuleName,
    RuleSql,
    SourceTableName,
    TargetTableName,
)
from floodmark.config.retention import RetentionConfig
from floodmark.config.upkeep import CaptureConfig
from floodmark.core.errors import ConfigError
from floodmark.core.policies import Backfill, Deletes, NetSource, OnFailure, OnGap, Rule, TemporalPolicy, WhenAdded
from floodmark.core.settings import PipelineSettings, TableSettings


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class SourceConfig(_Frozen):
    """conn_id: an Airflow connection of type mssql; its schema is the database. capture: how its capture job is kept,
    None to leave that to others; retention: the same for its cleanup job. pool: of Airflow, for the tasks that read it.
    """

    conn_id: ConnectionId
    capture: CaptureConfig | None = None
    retention: RetentionConfig | None = None
    pool: str | None = Field(default=None, min_length=1, max_length=256)
    drift: DriftWatchConfig = DriftWatchConfig()


class WarehouseConfig(_Frozen):
    """conn_id: an Airflow connection of type postgres."""

    conn_id: ConnectionId


class RuleConfig(_Frozen):
    """sql: a condition over the table's columns, in PostgreSQL's SQL; a row for which it is false breaks the rule."""

    name: RuleName
    sql: RuleSql
    on_failure: OnFailure = OnFailure.QUARANTINE


class FirstLoadConfig(_Frozen):
    """chunk_rows: how many rows of the table one statement reads. parallel_reads: how many such statements run at a
    time, for all tables of a window together (of several numbers, the highest). when_added: how a table is loaded that
    comes to a pipeline whose other tables have been loaded."""

    chunk_rows: PositiveInt = 500_000
    parallel_reads: PositiveInt = 4
    when_added: WhenAdded = WhenAdded.IN_WINDOW


class TableConfig(_Frozen):
    """key: columns to merge by, where the table has no primary key. What is None comes from the pipeline."""

    source: SourceTableName
    target: TargetTableName
    key: tuple[ColumnName, ...] = ()
    capture_instance: str | None = Field(default=None, min_length=1, max_length=100)
    rules: tuple[RuleConfig, ...] = ()
    deletes: Deletes | None = None
    net: NetSource | None = None
    temporal: TemporalPolicy | None = None
    partitions: NonNegativeInt | None = None
    first_load: FirstLoadConfig | None = None
    on_gap: OnGap | None = None
    backfill: Backfill | None = None
    drift: DriftConfig = DriftConfig()


class PipelineConfig(_Frozen):
    """schedule: cron, None to run on demand only. partitions: 0 lets the reader choose.

    freshness: how late rows may be in the warehouse before a check warns. lag_limit: how old the newest entry of the
    source's log may be before capture counts as lagging. max_lag: how late runs and rows may be before somebody is
    told; None for never.
    """

    source: str
    schedule: Cron | None = None
    deletes: Deletes = Deletes.SOFT
    net: NetSource = NetSource.SPARK
    temporal: TemporalPolicy = TemporalPolicy.TRUNCATE
    partitions: NonNegativeInt = 0
    first_load: FirstLoadConfig = FirstLoadConfig()
    on_gap: OnGap = OnGap.FAIL
    backfill: Backfill = Backfill.ALL
    freshness: Duration = timedelta(hours=1)
    lag_limit: Duration = timedelta(minutes=15)
    max_lag: Duration | None = None
    drift: DriftConfig = DriftConfig()
    tables: tuple[TableConfig, ...] = Field(min_length=1)


class Config(_Frozen):
    """The whole file."""

    sources: dict[str, SourceConfig] = Field(min_length=1)
    warehouse: WarehouseConfig
    pipelines: dict[PipelineName, PipelineConfig] = Field(min_length=1)
    alerts: AlertsConfig = AlertsConfig()

    def pipeline(self, name: str) -> PipelineConfig:
        """Raises ConfigError, naming those there are."""
        if name not in self.pipelines:
            raise ConfigError(name, "there is no such pipeline.", f"There are: {', '.join(sorted(self.pipelines))}.")
        return self.pipelines[name]

    def source_of(self, name: str) -> SourceConfig:
        """The source of a pipeline."""
        return self.sources[self.pipeline(name).source]

    def settings(self, name: str) -> PipelineSettings:
        """What a run needs of a pipeline, with every default filled in."""
        pipeline = self.pipeline(name)
        tables = tuple(_table_settings(pipeline, table) for table in pipeline.tables)
        return PipelineSettings(name, tables, pipeline.lag_limit.total_seconds())


def _table_settings(pipeline: PipelineConfig, table: TableConfig) -> TableSettings:
    on_gap = table.on_gap or pipeline.on_gap
    first_load = table.first_load or pipeline.first_load
    return TableSettings(
        source=table.source,
        target=table.target,
        deletes=table.deletes or pipeline.deletes,
        net=table.net or pipeline.net,
        temporal=table.temporal or pipeline.temporal,
        rules=tuple(Rule(rule.name, rule.sql, rule.on_failure) for rule in table.rules),
        key=table.key,
        capture_instance=table.capture_instance,
        partitions=pipeline.partitions if table.partitions is None else table.partitions,
        first_load_chunk_rows=first_load.chunk_rows,
        first_load_parallel_reads=first_load.parallel_reads,
        first_load_when_added=first_load.when_added,
        drift=drift_policies(pipeline.drift, table.drift, repairs=on_gap is OnGap.REPAIR),
        on_gap=on_gap,
        backfill=table.backfill or pipeline.backfill,
    )
