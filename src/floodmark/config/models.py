"""The shape of ``pipelines.yaml``: frozen models that refuse unknown keys.

What is left out has a default: a table takes what it does not set itself from its pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import date, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeInt,
    PlainSerializer,
    PositiveInt,
    Tag,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from floodmark.config.sections import (
    AirflowConfig,
    CaptureConfig,
    ColumnName,
    ConnectionId,
    Cron,
    Days,
    DriftConfig,
    DriftWatchConfig,
    Duration,
    ExpectationKwargs,
    ExpectationType,
    HeartbeatConfig,
    LakeUpkeepConfig,
    PipelineName,
    RetentionConfig,
    RuleName,
    RuleSql,
    SourcePattern,
    SourceTableName,
    TableColumns,
    TableFilter,
    TargetPattern,
    TargetTableName,
    WrittenPattern,
    check_rule,
    drift_policies,
    read_suites,
)
from floodmark.core.capture import HeartbeatSettings
from floodmark.core.columns import hides_values, why_no_columns, why_no_derived, why_no_filter
from floodmark.core.errors import ConfigError
from floodmark.core.naming import why_no_versions
from floodmark.core.patterns import ANY, PatternEntry, Patterns, TablePattern, fill_target, is_pattern
from floodmark.core.schema import TableName
from floodmark.core.settings import (
    DEFAULT_MAX_READS,
    DerivedColumn,
    Expectation,
    FirstLoad,
    OnFailure,
    OnGap,
    PipelineSettings,
    Rule,
    Style,
    TableDefaults,
    TableOptions,
    TableSettings,
    why_no_commit_times,
    why_no_options,
    why_no_style,
)
from floodmark.iceberg.limits import LAKE_SOURCES, find_refused
from floodmark.sources.kind import KindName, find_kind

# --------------------------------------------------------------------------------------------------------------------
# The part of ``pipelines.yaml`` about alerts: the channels that alerts are sent to.
#
# What is secret about a channel, such as an address with a token in it or a password, is in an Airflow connection.


ChannelName = Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=100)]
LOG_CHANNEL = "log"
"""The name of the log as a channel, which no configured channel may have."""


def _check_address(value: str) -> str:
    name, at, host = value.rpartition("@")
    if not (name and at and "." in host) or any(letter.isspace() or letter in ",;<>" for letter in value):
        raise ValueError(f"not an email address: {value!r} (expected one such as oncall@example.com)")
    return value


EmailAddress = Annotated[str, AfterValidator(_check_address)]


class _Channel(BaseModel):
    """The settings that all kinds of channels have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    conn_id: ConnectionId
    """The connection of the channel."""
    name: ChannelName | None = None
    """The channel's name in the log and the ledger; None: the connection's."""

    @property
    def label(self) -> str:
        """Return the name, or else the connection's."""
        return self.name or self.conn_id


class EmailConfig(_Channel):
    """A channel that sends email through an Airflow connection of type smtp."""

    kind: Literal["email"]
    to: tuple[EmailAddress, ...] = Field(min_length=1)
    """The receivers."""
    sender: EmailAddress | None = None
    """The sender; None: the connection's ``from_email``."""


class WebhookConfig(_Channel):
    """A channel that posts to an Airflow connection of type slackwebhook or http, which takes Slack's messages."""

    kind: Literal["webhook"]


class AppriseConfig(_Channel):
    """A channel of apprise: an Airflow connection of type apprise or generic, with the URL as its password."""

    kind: Literal["apprise"]


ChannelConfig = Annotated[EmailConfig | WebhookConfig | AppriseConfig, Field(discriminator="kind")]


class AlertsConfig(BaseModel):
    """The section ``alerts``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    channels: tuple[ChannelConfig, ...] = ()
    """The channels in addition to the log, which receives every alert."""

    @field_validator("channels")
    @classmethod
    def _check_names(cls, value: tuple[ChannelConfig, ...]) -> tuple[ChannelConfig, ...]:
        """Raise ValueError for duplicate names: the ledger records by its name which channel was notified."""
        names = Counter(channel.label for channel in value)
        duplicates = [name for name, count in names.items() if count > 1]
        if duplicates:
            raise ValueError(f"duplicate channel name {', '.join(duplicates)}: give each channel a name of its own")
        if LOG_CHANNEL in names:
            raise ValueError(f"the channel name {LOG_CHANNEL} is reserved for the log: choose another name")
        return value


# --------------------------------------------------------------------------------------------------------------------


def keys_of(section: type) -> Mapping[str, FieldInfo]:
    """Return the keys of a section by name, those that pipelines and tables share last."""
    found: Mapping[str, FieldInfo] = vars(section)["__pydantic_fields__"]
    if not is_dataclass(section):
        return found
    return {name: found[name] for name in sorted(found, key=lambda name: name not in section.__annotations__)}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class SourceConfig(_Frozen):
    """A SQL Server database, or a fleet of edge databases."""

    conn_id: ConnectionId
    """An Airflow connection of type mssql, whose schema is the database; for kind compact, of type fs."""
    kind: KindName = "cdc"
    """How its changes are read: by change data capture, by change tracking, from the files of devices, or from the
    events that the server streams."""
    stream_conn_id: ConnectionId | None = None
    """For kind event_stream, the connection of the stream: of type kafka, or of type fs for the folder of captures."""
    capture: CaptureConfig | None = None
    """How the capture job is maintained; None: Floodmark does not change it."""
    retention: RetentionConfig | None = None
    """How the cleanup job is maintained; None: Floodmark does not change it."""
    heartbeat: HeartbeatConfig | None = None
    """For kind event_stream, the proof that the server still streams; None: nothing is written to the source."""
    pool: str | None = Field(default=None, min_length=1, max_length=256)
    """The Airflow pool of the tasks that read the source."""
    max_reads: PositiveInt | None = None
    """How many statements of one load read the source at a time; None: 4, or first_load.parallel_reads if higher."""
    drift: DriftWatchConfig = DriftWatchConfig()

    @model_validator(mode="after")
    def _require_keys(self) -> Self:
        for key, words in find_kind(self.kind).rules.required.items():
            if getattr(self, key) is None:
                raise ValueError(f"a source of kind {self.kind} needs {key}, {words}")
        return self

    @property
    def beat_table(self) -> TableName | None:
        """Return the heartbeat table of the capture job or of the stream."""
        return self.heartbeat.table if self.heartbeat else self.capture.heartbeat if self.capture else None


class WarehouseConfig(_Frozen):
    """The warehouse that all pipelines load."""

    conn_id: ConnectionId
    """An Airflow connection of type postgres; for a lake (kind iceberg) of type fs, or of type aws for a bucket."""
    kind: Literal["postgres", "iceberg"] = "postgres"
    """Whether the targets are tables of PostgreSQL, or Iceberg tables (docs/lakehouse.md)."""
    # Declared after ``kind``, which they are checked against.
    catalog_conn_id: ConnectionId | None = None
    """An Airflow connection of type iceberg: a REST catalog in which the tables of a lake are registered too."""
    upkeep: LakeUpkeepConfig | None = None
    """When a lake is kept small; None: by the defaults. A warehouse in PostgreSQL has no upkeep."""

    @field_validator("catalog_conn_id", "upkeep")
    @classmethod
    def _check_lake(cls, value: object, info: ValidationInfo) -> object:
        if value is not None and info.data.get("kind") == "postgres":
            raise ValueError("it is for a warehouse of kind iceberg: PostgreSQL keeps its tables itself")
        return value

    @property
    def lake_upkeep(self) -> LakeUpkeepConfig:
        """Return the upkeep of a lake."""
        return self.upkeep or LakeUpkeepConfig()


class LedgerConfig(_Frozen):
    """The ledger, where it has a connection of its own."""

    conn_id: ConnectionId
    """An Airflow connection of type postgres: to the database of the warehouse, or to that of the lake's catalog."""


# --------------------------------------------------------------------------------------------------------------------
# Pipelines and their tables. Their settings are those of ``core.settings``: one is here as well only where not every
# value of its type is valid, or where the file has it in another form.


_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class FirstLoadConfig(FirstLoad):
    """The section ``first_load``: how a whole table is loaded."""

    chunk_rows: PositiveInt = FirstLoad.chunk_rows
    parallel_reads: PositiveInt = FirstLoad.parallel_reads


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class RuleConfig(Rule):
    """A data quality rule."""

    name: RuleName
    """It names the rule in quarantine, findings and messages."""
    sql: RuleSql
    """A condition over the target's columns, in PostgreSQL's SQL; a row for which it is false breaks the rule."""
    on_failure: OnFailure = OnFailure.QUARANTINE


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ExpectationConfig(Expectation):
    """An expectation of Great Expectations, or in its place a file of them: ``{suite: path}``."""

    type: ExpectationType
    kwargs: ExpectationKwargs = "{}"
    rows: Literal["window", "table"] = "window"
    severity: Literal["critical", "warning"] = "critical"


def _read_derived(value: object, info: ValidationInfo) -> object:
    """Return derived columns as a list, from a mapping by their names. Raises ValueError, naming the column."""
    if not isinstance(value, dict):
        return value
    for name, text in value.items():
        try:
            check_rule(str(text), info, "an expression")
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return [{"name": str(name), "sql": str(text)} for name, text in value.items()]


TableDerived = Annotated[
    tuple[DerivedColumn, ...],
    BeforeValidator(_read_derived),
    PlainSerializer(lambda columns: {each.name: each.sql for each in columns}, when_used="json"),
]
FarDay = Annotated[date, Field(ge=date(2100, 1, 1))]
KeptTime = Annotated[Duration, Field(ge=timedelta(days=30))]
LobBatch = Annotated[ByteSize, Field(ge=1_000_000, le=1_000_000_000)]


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class _Defaults(TableDefaults):
    partitions: NonNegativeInt = TableDefaults.partitions
    lob_batch: LobBatch = ByteSize(TableDefaults.lob_batch)
    first_load: FirstLoadConfig = FirstLoadConfig()
    drift: DriftConfig = DriftConfig()


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class TableConfig(_Defaults, TableOptions):
    """A table of a pipeline. A setting that is None comes from the pipeline."""

    source: SourceTableName
    target: TargetTableName
    key: tuple[ColumnName, ...] = ()
    capture_instance: str | None = Field(default=None, min_length=1, max_length=100)
    rules: tuple[RuleConfig, ...] = ()
    expectations: Annotated[tuple[ExpectationConfig, ...], BeforeValidator(read_suites)] = ()
    columns: TableColumns = ()
    derived: TableDerived = ()
    mask_key_conn_id: ConnectionId | None = None
    where: TableFilter = None
    keep_versions: Days | None = None
    open_end: FarDay | None = None
    track: tuple[ColumnName, ...] = ()

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if why := why_no_columns(self):
            raise ValueError(f"columns: {why}")
        if why := why_no_derived(self):
            raise ValueError(f"derived: {why}")
        if why := why_no_filter(self):
            raise ValueError(f"where: {why}")
        if why := why_no_options(self):
            raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _check_style(self) -> Self:
        why = why_no_style(self) or (why_no_versions(self.target) if self.style is Style.HISTORY else "")
        if why:
            raise ValueError(f"style: {self.style.value}, but {why}")
        if why := why_no_commit_times(self):
            raise ValueError(f"commit_times: true, but {why}")
        return self


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class PatternConfig(TableConfig):
    """An entry for every table of the source that a pattern matches; ``*`` in its names is any text."""

    source: SourcePattern
    target: TargetPattern
    exclude: tuple[WrittenPattern, ...] = ()
    """Names and patterns of tables that are not part of the pipeline."""

    @field_validator("source")
    @classmethod
    def _check_schema(cls, value: TableName) -> TableName:
        if ANY in value.schema:
            raise ValueError("a pattern is one schema and a pattern of names, such as dbo.*")
        return value

    @field_validator("target")
    @classmethod
    def _check_target(cls, value: TableName) -> TableName:
        if value.name.count(ANY) != 1 or ANY in value.schema:
            raise ValueError("the target of a pattern has one * in the place of the table's name, such as shop.*")
        return value

    @field_validator("capture_instance")
    @classmethod
    def _check_instance(cls, value: str | None) -> str | None:
        if value is not None:
            raise ValueError("a capture instance belongs to one table: write an entry for that table")
        return value

    @field_validator("columns", "derived")
    @classmethod
    def _check_no_columns(cls, value: Any) -> Any:
        if value:
            raise ValueError("the columns belong to one table: write an entry for that table")
        return value

    @field_validator("where")
    @classmethod
    def _check_no_filter(cls, value: TableFilter) -> TableFilter:
        if value is not None:
            raise ValueError("a filter is over the columns of one table: write an entry for that table")
        return value

    @property
    def entry(self) -> PatternEntry:
        """Return what the entry says about which tables are taken."""
        return PatternEntry(TablePattern(self.source), self.exclude, self.target, self.naming)

    def table(self, name: TableName) -> TableConfig:
        """Return the entry of one of its tables."""
        values = {each.name: getattr(self, each.name) for each in fields(TableConfig)}
        return TableConfig(**values | {"source": name, "target": fill_target(self.target, name, self.naming)})


def _kind_of_entry(value: object) -> str:
    if isinstance(value, TableConfig):
        return "[pattern]" if isinstance(value, PatternConfig) else "[table]"
    source = value.get("source") if isinstance(value, dict) else None
    return "[pattern]" if isinstance(source, str) and is_pattern(source) else "[table]"


Entry = Annotated[
    Annotated[TableConfig, Tag("[table]")] | Annotated[PatternConfig, Tag("[pattern]")], Discriminator(_kind_of_entry)
]


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class PipelineConfig(_Defaults):
    """A pipeline: the tables of one source that are loaded together."""

    source: str
    """The name of its source."""
    schedule: Cron | None = None
    """A cron expression; None to run on demand only."""
    freshness: Duration = timedelta(hours=1)
    """How late rows may be in the warehouse before a check warns."""
    lag_limit: Duration = timedelta(minutes=15)
    """How old the newest entry of the source's log may be before capture counts as lagging."""
    max_lag: Duration | None = None
    """How late runs and rows may be before an alert is raised; None for never."""
    keep_windows: KeptTime = timedelta(days=400)
    """How long the ledger keeps published windows, longer than the source keeps changes."""
    airflow: AirflowConfig = AirflowConfig()
    new_tables: Literal["report", "add"] = "report"
    """What is done with a table that matches a pattern and comes later."""
    # Read after the settings that it takes from the pipeline: as a positional argument, it would be the first.
    tables: tuple[Entry, ...] = Field(min_length=1, kw_only=True)

    @property
    def patterns(self) -> tuple[PatternConfig, ...]:
        """Return the entries for all tables that a pattern matches."""
        return tuple(each for each in self.tables if isinstance(each, PatternConfig))

    @property
    def named_tables(self) -> tuple[TableConfig, ...]:
        """Return the entries for one table."""
        return tuple(each for each in self.tables if not isinstance(each, PatternConfig))

    @field_validator("tables", mode="before")
    @classmethod
    def _fill_in(cls, tables: object, info: ValidationInfo) -> object:
        """Give each table the settings of the pipeline that it does not have itself."""
        return [_filled(table, info.data) for table in tables] if isinstance(tables, list) else tables

    @field_validator("airflow")
    @classmethod
    def _check_schedule(cls, value: AirflowConfig, info: ValidationInfo) -> AirflowConfig:
        if value.after_assets and info.data.get("schedule"):
            raise ValueError("after_assets takes the place of schedule: remove one of the two")
        return value


def _filled(table: object, pipeline: Mapping[str, Any]) -> object:
    if not isinstance(table, dict):
        return table
    shared = {field.name for field in fields(TableDefaults)}
    own = {key: value for key, value in table.items() if value is not None or key not in shared}
    return {key: pipeline[key] for key in shared & pipeline.keys()} | own


class Config(_Frozen):
    """The whole file."""

    sources: dict[str, SourceConfig] = Field(min_length=1)
    warehouse: WarehouseConfig
    ledger: LedgerConfig | None = None
    """None: it is reached by the warehouse's connection."""
    pipelines: dict[PipelineName, PipelineConfig] = Field(min_length=1)
    alerts: AlertsConfig = AlertsConfig()

    @model_validator(mode="after")
    def _check_dag_ids(self) -> Self:
        """Raise ValueError for a pipeline whose DAG has the id of another one, which Airflow would not show."""
        taken = {f"load_{name}": f"the loads of pipeline {name}" for name in self.pipelines}
        for source in sorted({each.source for each in self.pipelines.values()} & set(self.sources)):
            taken |= {f"drift_{source}": f"the drift of source {source}"}
            if self.sources[source].kind == "cdc":
                taken |= {f"switch_{source}": f"the switches of source {source}"}
        for source, config in self.sources.items():
            if config.capture is not None:
                taken |= {f"capture_{source}": f"the capture job of source {source}"}
            if config.retention is not None:
                taken |= {f"retention_{source}": f"the retention of source {source}"}
        if self.warehouse.kind == "iceberg":
            taken |= {"lake_upkeep": "the upkeep of the lake"}
        for name in self.pipelines:
            if name in taken:
                raise ValueError(f"pipelines.{name}: cdc_{name} is the DAG of {taken[name]}: choose another name")
        return self

    @model_validator(mode="after")
    def _check_lake(self) -> Self:
        """Raise ValueError for what a lake does not support."""
        if self.warehouse.kind != "iceberg":
            return self
        if self.ledger is None:
            raise ValueError("a warehouse of kind iceberg needs a ledger in PostgreSQL: set ledger.conn_id")
        for name, pipeline in self.pipelines.items():
            kind = self.sources[pipeline.source].kind if pipeline.source in self.sources else LAKE_SOURCES[0]
            if kind not in LAKE_SOURCES:
                raise ValueError(f"pipelines.{name}: a warehouse of kind iceberg takes no source of kind {kind} so far")
            for table in pipeline.tables:
                if refused := list(find_refused(table)):
                    found = "; ".join(refused)
                    raise ValueError(f"pipelines.{name}, {table.source}: a lake does not support {found}")
        return self

    def pipeline(self, name: str) -> PipelineConfig:
        """Return a pipeline. Raises ConfigError, listing the pipelines that exist, for an unknown name."""
        if name not in self.pipelines:
            raise ConfigError(name, "there is no such pipeline.", f"There are: {', '.join(sorted(self.pipelines))}.")
        return self.pipelines[name]

    def source_of(self, name: str) -> SourceConfig:
        """Return the source of a pipeline."""
        return self.sources[self.pipeline(name).source]

    def heartbeat_of(self, name: str) -> HeartbeatSettings | None:
        """Return the heartbeat that a pipeline keeps: that of its source, where the pipeline has the table."""
        found = self.source_of(name).heartbeat
        pipeline = self.pipeline(name)
        if found is None or not (
            any(table.source == found.table for table in pipeline.named_tables)
            or any(each.entry.takes(found.table) for each in pipeline.patterns)
        ):
            return None
        return found.settings()

    def patterns_of(self, name: str) -> Patterns:
        """Return the patterns of a pipeline, with what else of the configuration says which tables they bring."""
        pipeline = self.pipeline(name)
        filled = {
            table.target: str(table.source) if each is pipeline else f"pipeline {other}"
            for other, each in self.pipelines.items()
            for table in each.named_tables
        }
        named = frozenset(table.source for table in pipeline.named_tables)
        return Patterns(tuple(each.entry for each in pipeline.patterns), named, filled, pipeline.new_tables == "add")

    def settings(self, name: str, taken: Sequence[TableName] = ()) -> PipelineSettings:
        """Return the settings that a run needs of a pipeline, with every default filled in.

        taken: the tables that its patterns stand for. Each matches one.
        """
        pipeline = self.pipeline(name)
        brought = (next(each for each in pipeline.patterns if each.entry.takes(table)).table(table) for table in taken)
        keeps = not self._hides_in_stream(self.source_of(name).stream_conn_id)
        chosen = (self.table_settings(name, table) for table in (*pipeline.named_tables, *brought))
        tables = tuple(replace(table, keeps_messages=keeps) for table in chosen)
        return PipelineSettings(name, tables, pipeline.lag_limit.total_seconds(), pipeline.source)

    def _hides_in_stream(self, stream: str | None) -> bool:
        """Return whether a table of a stream, of whatever pipeline, hides values: its messages may be of any table."""
        if stream is None:
            return False
        sources = {name for name, source in self.sources.items() if source.stream_conn_id == stream}
        found = (each for each in self.pipelines.values() if each.source in sources)
        return any(hides_values(table) for pipeline in found for table in pipeline.named_tables)

    def table_settings(self, name: str, table: TableConfig) -> TableSettings:
        """Return the settings of an entry of a pipeline, with every default filled in."""
        return _table_settings(self.pipeline(name), table, self.source_of(name))


_TABLE = TypeAdapter(TableConfig)
_SETTINGS = TypeAdapter(TableSettings)


def _table_settings(pipeline: PipelineConfig, table: TableConfig, source: SourceConfig) -> TableSettings:
    rules = find_kind(source.kind).rules
    repairs = table.on_gap is OnGap.REPAIR
    decided = {
        "net": rules.net or table.net,
        "drift": drift_policies(pipeline.drift, table.drift, rules.drift_defaults, repairs=repairs),
        "max_reads": source.max_reads or max(DEFAULT_MAX_READS, table.first_load.parallel_reads),
    }
    return _SETTINGS.validate_python(_TABLE.dump_python(table) | decided)
