"""The sections of ``pipelines.yaml`` with rules of their own, and the checks of their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import croniter  # type: ignore[import-untyped]
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    NonNegativeInt,
    PlainSerializer,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from floodmark.core.capture import HeartbeatSettings, PlannedStop
from floodmark.core.patterns import TablePattern
from floodmark.core.schema import IDENTIFIER_MAX_BYTES, LEDGER_SCHEMA, STAGING_SCHEMA, TableName
from floodmark.core.settings import ALLOWED, Cast, ColumnSettings, DriftClass, DriftPolicies, DriftPolicy, Filter, Mask
from floodmark.core.upkeep import HOLD_MINUTES, CaptureSettings, OnLow, RetentionSettings

# --------------------------------------------------------------------------------------------------------------------
# The values of ``pipelines.yaml`` that are more than a string or a number, each with its own check.


PARSE_RULES = "parse_rules"
"""The key of the validation context; without it, the SQL of rules is parsed."""
FOLDER = "folder"
"""The key of the validation context for the folder that paths of the file are relative to."""
_CRON_FIELDS = 5
_DURATION = re.compile(r"(\d+)\s*([smhd])")
_DAYS = re.compile(r"(\d+)\s*([dy])")
_DAYS_OF_A_YEAR = 366
"""Years of law have 366 days too: nothing is deleted before they are over."""
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_OWN_SCHEMAS = frozenset({LEDGER_SCHEMA, STAGING_SCHEMA, "information_schema"})


def _parse_table(value: object) -> object:
    return TableName.parse(value) if isinstance(value, str) else value


def _check_target(name: TableName) -> TableName:
    for part in (name.schema, name.name):
        if len(part.encode()) > IDENTIFIER_MAX_BYTES:
            raise ValueError(f"{part!r} is longer than the {IDENTIFIER_MAX_BYTES} bytes of PostgreSQL's names")
        if "\0" in part:
            raise ValueError("a name cannot hold a zero character")
    if name.schema.lower() in _OWN_SCHEMAS or name.schema.lower().startswith("pg_"):
        raise ValueError(f"schema {name.schema} is reserved: choose another schema for the target")
    return name


def _parse_pattern(value: object) -> object:
    return TablePattern.parse(value) if isinstance(value, str) else value


def _check_cron(value: str) -> str:
    if not value.startswith("@") and len(value.split()) != _CRON_FIELDS:
        raise ValueError(f"not a cron expression: {value!r} (expected five fields, such as '*/5 * * * *')")
    if not croniter.is_valid(value):
        raise ValueError(f"not a cron expression: {value!r}")
    return value


def _parse_duration(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if not match:
        raise ValueError(f"not a duration: {value!r} (expected a number and s, m, h or d, such as 30m)")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _parse_days(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = _DAYS.fullmatch(value.strip())
    if not match:
        raise ValueError(f"not a time in days or years: {value!r} (expected a number and d or y, such as 90d or 7y)")
    return int(match[1]) * (_DAYS_OF_A_YEAR if match[2] == "y" else 1)


def _check_positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("a duration must be positive")
    return value


def check_rule(value: str, info: ValidationInfo, what: str = "a condition") -> str:
    """Return SQL over the columns of a target. Raises ValueError where it is not what it is to be. what: that."""
    if (info.context or {}).get(PARSE_RULES, True):
        # Imported here: a DAG file is parsed repeatedly and leaves rules to the run.
        from floodmark.sync.rules import parse_rule  # noqa: PLC0415

        parse_rule(value, what)
    return value


_WRITTEN = PlainSerializer(str, when_used="json")
SourceTableName = Annotated[TableName, BeforeValidator(_parse_table), _WRITTEN]
TargetTableName = Annotated[TableName, BeforeValidator(_parse_table), AfterValidator(_check_target), _WRITTEN]
_PATTERN = PlainSerializer(lambda name: str(TablePattern(name)), when_used="json")
SourcePattern = Annotated[TableName, BeforeValidator(_parse_table), _PATTERN]
TargetPattern = Annotated[TableName, BeforeValidator(_parse_table), AfterValidator(_check_target), _PATTERN]


def _check_expectation(value: str, info: ValidationInfo) -> str:
    """Raise ValueError for a type that Great Expectations does not have. Its import takes seconds: files are listed."""
    if not (info.context or {}).get(PARSE_RULES, True):
        return value
    package = find_spec("great_expectations")
    folders = package.submodule_search_locations if package else None
    known = [each.stem for folder in folders or () for each in Path(folder, "expectations", "core").glob("*expect*.py")]
    if known and value not in known:
        close = get_close_matches(value, known, n=1)
        raise ValueError(f"there is no expectation {value}" + (f" (did you mean {close[0]}?)" if close else ""))
    return value


def read_suites(value: object, info: ValidationInfo) -> object:
    """Return expectations with those of suite files in the place of ``{suite: path}``. Raises ValueError."""
    if not isinstance(value, list):
        return value
    folder = Path((info.context or {}).get(FOLDER, "."))
    found: list[object] = []
    for each in value:
        suite = each.get("suite") if isinstance(each, dict) else None
        found += [each] if suite is None else _read_suite(folder / str(suite), each)
    return found


def _read_suite(path: Path, entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    own = {key: value for key, value in entry.items() if key != "suite"}
    try:
        expectations = json.loads(path.read_text(encoding="utf-8"))["expectations"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is no suite of Great Expectations (a JSON file with expectations)") from None
    for each in expectations:
        severity = {"severity": "warning"} if each.get("severity") in ("warning", "info") else {}
        yield {"type": each.get("type"), "kwargs": each.get("kwargs", {})} | severity | own


def parse_columns(value: object) -> object:
    """Return the settings of columns as a list, from a mapping by their names. Raises ValueError, naming the column."""
    if not isinstance(value, dict):
        return value
    return [{"name": str(name)} | _read_column(str(name), settings) for name, settings in value.items()]


def _read_column(name: str, settings: object) -> dict[str, object]:
    if settings in ("drop", "keep"):
        return {"is_dropped": settings == "drop"}
    if not isinstance(settings, dict) or not settings or not settings.keys() <= {"as", "mask", "cast"}:
        raise ValueError(f"column {name} is drop, keep, or a mapping with as, mask and cast")
    target = settings.get("as", "")
    if not isinstance(target, str) or ("as" in settings and not target):
        raise ValueError(f"as of {name} is no name")
    if "cast" in settings and settings["cast"] not in (casts := [each.value for each in Cast]):
        raise ValueError(f"the cast of {name} is {', '.join(casts)}")
    masked = _read_mask(name, settings["mask"]) if "mask" in settings else {}
    return {"target": target, "cast": settings.get("cast")} | masked


def _read_mask(name: str, mask: object) -> dict[str, object]:
    """Return a mask: its name, or ``{round: digits}``. YAML reads null without quotation marks as None."""
    mask = Mask.NULL.value if mask is None else mask
    digits = mask.get(Mask.ROUND.value) if isinstance(mask, dict) and len(mask) == 1 else None
    if isinstance(digits, int) and not isinstance(digits, bool) and abs(digits) <= _MOST_DIGITS:
        return {"mask": Mask.ROUND, "digits": digits}
    plain = [each.value for each in Mask if each is not Mask.ROUND]
    if mask not in plain:
        raise ValueError(f"the mask of {name} is {', '.join(plain)}, or {{round: n}} with n from -38 to 38")
    return {"mask": Mask(mask)}


def _write_columns(columns: tuple[ColumnSettings, ...]) -> dict[str, object]:
    """Return the settings of columns as a file has them."""
    return {column.name: _write_column(column) for column in columns}


def _write_column(column: ColumnSettings) -> object:
    if column.is_dropped:
        return "drop"
    found: dict[str, object] = {"as": column.target} if column.target else {}
    if column.mask is not None:
        found["mask"] = {"round": column.digits} if column.mask is Mask.ROUND else column.mask.value
    if column.cast is not None:
        found["cast"] = column.cast.value
    return found or "keep"


def read_filter(value: object, info: ValidationInfo) -> object:
    """Return the filter of a text. Raises ValueError, naming the part that it cannot have."""
    if not isinstance(value, str):
        return value
    if not (info.context or {}).get(PARSE_RULES, True):
        return Filter(value)
    # Imported here: a DAG file is parsed repeatedly and leaves filters to the run.
    from floodmark.sync.filters import parse_filter  # noqa: PLC0415

    return parse_filter(value)


_MOST_DIGITS = 38
TableColumns = Annotated[
    tuple[ColumnSettings, ...], BeforeValidator(parse_columns), PlainSerializer(_write_columns, when_used="json")
]
TableFilter = Annotated[
    Filter | None,
    BeforeValidator(read_filter),
    PlainSerializer(lambda value: value.sql if value else None, when_used="json"),
]
ExpectationType = Annotated[str, AfterValidator(_check_expectation)]
ExpectationKwargs = Annotated[
    str,
    BeforeValidator(lambda value: json.dumps(value, default=str) if isinstance(value, dict) else value),
    PlainSerializer(json.loads, when_used="json"),
]
WrittenPattern = Annotated[TablePattern, BeforeValidator(_parse_pattern), _WRITTEN]
Cron = Annotated[str, AfterValidator(_check_cron)]
Duration = Annotated[
    timedelta,
    BeforeValidator(_parse_duration),
    AfterValidator(_check_positive),
    PlainSerializer(lambda value: f"{value.total_seconds():.0f}s"),
]
Days = Annotated[
    int,
    BeforeValidator(_parse_days),
    Field(gt=0, le=100_000),
    PlainSerializer(lambda value: f"{value}d", when_used="json"),
]
RuleSql = Annotated[str, AfterValidator(check_rule)]
RuleName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]
AssetUri = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*:.+$", max_length=1500)]
TagName = Annotated[str, Field(min_length=1, max_length=100)]
PipelineName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]
ConnectionId = Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=250)]
ColumnName = Annotated[str, Field(min_length=1, max_length=128)]
"""The name of a source column, as the source spells it."""


# --------------------------------------------------------------------------------------------------------------------
# The parts of ``pipelines.yaml`` about a source's capture job and its heartbeat.


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"not a time zone: {value!r} (expected a name such as Europe/Berlin)") from None
    return value


TimeZone = Annotated[str, AfterValidator(_check_zone)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class StopConfig(_Frozen):
    """A period without capture: from each firing of ``stop`` to the next firing of ``start``."""

    stop: Cron
    """When capture stops, in the time zone of the section."""
    start: Cron
    """When it starts again."""


class CaptureJobConfig(_Frozen):
    """Parameters of sys.sp_cdc_change_job, under its names and in its units.

    A parameter that is None is not changed.
    """

    maxtrans: PositiveInt | None = None
    """The most transactions of one scan of the log."""
    maxscans: PositiveInt | None = None
    """The most scans of one cycle."""
    pollinginterval: int | None = Field(default=None, ge=1, le=86_399)
    """The seconds between two cycles."""


class CaptureConfig(_Frozen):
    """The section ``capture`` of a source: how its capture job is maintained."""

    schedule: Cron = "*/5 * * * *"
    """How often the job is brought to the wanted state, in UTC."""
    conn_id: str | None = None
    """A connection with a login that is db_owner; None: the source's own."""
    time_zone: TimeZone = "UTC"
    """The time zone of ``stops``."""
    stops: tuple[StopConfig, ...] = ()
    job: CaptureJobConfig = CaptureJobConfig()
    drain_limit: Duration = timedelta(minutes=10)
    """How long a stop waits for capture to catch up."""
    lag_limit: Duration = timedelta(minutes=15)
    """How long capture may deliver nothing."""
    log_held_limit: Duration = timedelta(hours=12)
    """How long the source's log may be held for uncaptured changes before a stop is ended."""
    log_used_limit_percent: float = Field(default=70.0, gt=0, le=100)
    """How full the source's log may be before a stop is ended."""
    heartbeat: SourceTableName | None = None
    """A table of the source that each run writes to, and whose changes must arrive."""

    def settings(self) -> CaptureSettings:
        """Return the settings as plain values."""
        return CaptureSettings(
            job=self.job.model_dump(exclude_none=True),
            drain_limit_seconds=self.drain_limit.total_seconds(),
            lag_limit_seconds=self.lag_limit.total_seconds(),
            log_held_limit_seconds=self.log_held_limit.total_seconds(),
            log_used_limit_percent=self.log_used_limit_percent,
            heartbeat=self.heartbeat,
        )


class HeartbeatConfig(_Frozen):
    """The section ``heartbeat`` of a source: the proof that the server still streams."""

    table: SourceTableName
    """A table of a pipeline of the source, which runs write to, and whose changes must arrive."""
    limit: Duration = timedelta(minutes=15)
    """How long a change of it may take to arrive."""

    def settings(self) -> HeartbeatSettings:
        """Return the settings as plain values."""
        return HeartbeatSettings(self.table, self.limit.total_seconds())


# --------------------------------------------------------------------------------------------------------------------
# Planned stops of the capture job, and the firings of a schedule.
#
# Firings are computed on the wall clock of the schedule's zone. One that the change to summer time skips counts as so
# much later; one in the hour that is repeated in autumn counts once, the first time.


# No zone's clock is ever moved by more at once.
_CLOCK_CHANGE = timedelta(hours=3)


def planned_stop(capture: CaptureConfig, now: datetime) -> PlannedStop | None:
    """Return the stop that is in effect at ``now`` (with a zone), None where none is; of several, the last to end."""
    zone = ZoneInfo(capture.time_zone)
    found = []
    for window in capture.stops:
        stopped = _last_wall(window.stop, zone, now)
        since = _moment(stopped, zone)
        # The start that follows on the wall clock ends a stop. Where the change to summer time has moved the stop
        # beyond that start, there is no stop.
        ended = _moment(croniter(window.start, stopped).get_next(datetime), zone)
        if since > last_firing(window.start, zone, now) and ended > now:
            until = next_firing(window.start, zone, now)
            found.append((until, since))
    # Moments of one zone are compared by its wall clock, which may go back. These are in UTC.
    return PlannedStop(max(found)[1].astimezone(zone), max(found)[0].astimezone(zone)) if found else None


def last_firing(cron: str, zone: ZoneInfo, now: datetime) -> datetime:
    """Return the last firing that is not after ``now``, in UTC."""
    return _moment(_last_wall(cron, zone, now), zone)


def _last_wall(cron: str, zone: ZoneInfo, now: datetime) -> datetime:
    """Return the last firing on the wall clock; a skipped one has the time that the schedule names."""
    begin = now.astimezone(zone).replace(tzinfo=None) + _CLOCK_CHANGE
    firings: Iterator[datetime] = croniter(cron, begin).all_prev(datetime)
    return next(firing for firing in firings if _moment(firing, zone) <= now)


def next_firing(cron: str, zone: ZoneInfo, now: datetime) -> datetime:
    """Return the first firing after ``now``, in UTC."""
    begin = now.astimezone(zone).replace(tzinfo=None) - _CLOCK_CHANGE
    firings: Iterator[datetime] = croniter(cron, begin).all_next(datetime)
    return next(at for firing in firings if (at := _moment(firing, zone)) > now)


def _moment(wall: datetime, zone: ZoneInfo) -> datetime:
    return wall.replace(tzinfo=zone).astimezone(UTC)


# --------------------------------------------------------------------------------------------------------------------
# The part of ``pipelines.yaml`` about how long a source keeps its changes.


_MINUTE = timedelta(minutes=1)


class LakeUpkeepConfig(BaseModel):
    """The section ``upkeep`` of a warehouse of kind iceberg: fewer and larger files, and no old snapshots."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    schedule: Cron = "30 2 * * *"
    """When the DAG ``cdc_lake_upkeep`` runs, in UTC."""
    keep: Duration = timedelta(days=7)
    """How long readers can go back, and the longest that a query may take."""


class RetentionConfig(BaseModel):
    """The section ``retention`` of a source: how long it keeps its changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    schedule: Cron = "*/15 * * * *"
    """How often the source is checked, in UTC."""
    conn_id: ConnectionId | None = None
    """A connection with a login that is db_owner; None: the source's own."""
    keep: Duration | None = None
    """The retention of the cleanup job; None: Floodmark does not change it."""
    headroom_limit: Duration = timedelta(days=1)
    """How long before cleanup passes a watermark an alert is raised."""
    ceiling: Duration = timedelta(days=14)
    """The longest retention that ``raise_retention`` sets."""
    threshold: PositiveInt | None = None
    """How many rows one statement of cleanup deletes."""
    cleanup_margin: Duration | None = None
    """How far behind the slowest watermark changes are cleaned up; None: only the cleanup job deletes them."""
    change_table_limit: ByteSize | None = None
    """How large a change table may be before an alert is raised."""
    # Declared after ``keep``, which it is checked against.
    on_low: OnLow = OnLow.ALERT

    @field_validator("keep", "ceiling")
    @classmethod
    def _check_range(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and not _MINUTE <= value < HOLD_MINUTES * _MINUTE:
            raise ValueError("a retention must be at least a minute and less than a hundred years")
        return value

    @field_validator("on_low")
    @classmethod
    def _check_policy(cls, value: OnLow, info: ValidationInfo) -> OnLow:
        if value is not OnLow.ALERT and "keep" in info.data and info.data["keep"] is None:
            raise ValueError(f"{value.value} requires keep, the retention that is restored afterwards")
        return value

    def settings(self) -> RetentionSettings:
        """Return the settings as plain values."""
        return RetentionSettings(
            keep_minutes=self.keep // _MINUTE if self.keep else None,
            ceiling_minutes=self.ceiling // _MINUTE,
            headroom_limit_seconds=self.headroom_limit.total_seconds(),
            on_low=self.on_low,
            threshold=self.threshold,
            margin_seconds=self.cleanup_margin.total_seconds() if self.cleanup_margin else None,
            change_table_limit_bytes=self.change_table_limit,
        )


# --------------------------------------------------------------------------------------------------------------------
# The parts of ``pipelines.yaml`` about schema drift: how often a source is checked, and the policy for each class.


class DriftWatchConfig(BaseModel):
    """The section ``drift`` of a source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schedule: Cron | None = None
    """A schedule of the source's drift DAG, in UTC, besides the runs that those of pipelines start."""


class DriftConfig(BaseModel):
    """A policy for each class of drift.

    A policy of a table that is not set comes from the pipeline, and otherwise from ``core.settings.ALLOWED``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column_added: DriftPolicy | None = None
    column_dropped: DriftPolicy | None = None
    type_widened: DriftPolicy | None = None
    type_narrowed: DriftPolicy | None = None
    type_changed: DriftPolicy | None = None
    nullability_changed: DriftPolicy | None = None
    key_changed: DriftPolicy | None = None
    table_renamed: DriftPolicy | None = None
    table_dropped: DriftPolicy | None = None
    cdc_disabled: DriftPolicy | None = None
    instance_replaced: DriftPolicy | None = None
    unknown: DriftPolicy | None = None

    @field_validator("*")
    @classmethod
    def _check_policy(cls, value: DriftPolicy | None, info: ValidationInfo) -> DriftPolicy | None:
        allowed = ALLOWED[DriftClass(info.field_name)]
        if value is not None and value not in allowed:
            raise ValueError(f"{value.value} is not an allowed policy (expected {', '.join(p.value for p in allowed)})")
        return value

    def chosen(self) -> dict[DriftClass, DriftPolicy]:
        """Return the policies that are configured here."""
        return {kind: policy for kind in DriftClass if (policy := getattr(self, kind.value)) is not None}


def drift_policies(
    pipeline: DriftConfig,
    table: DriftConfig,
    defaults: Mapping[DriftClass, DriftPolicy] | None = None,
    *,
    repairs: bool = False,
) -> DriftPolicies:
    """Return the policies of a table: its own ones, then those of its pipeline, without those that are the default.

    defaults: those of the kind of the source, where they differ. repairs: a table whose capture instance was replaced
    is reloaded, and does not wait for the operator.
    """
    chosen = {**(defaults or {}), **({DriftClass.INSTANCE_REPLACED: DriftPolicy.ALERT} if repairs else {})}
    chosen |= pipeline.chosen() | table.chosen()
    # The order is fixed, so that two configurations with the same policies are equal.
    kinds = [kind for kind in DriftClass if kind in chosen and chosen[kind] is not ALLOWED[kind][0]]
    return DriftPolicies(tuple((kind, chosen[kind]) for kind in kinds))


# --------------------------------------------------------------------------------------------------------------------
# The part of ``pipelines.yaml`` about Airflow: how it runs the DAGs of a pipeline.


class TaskArgs(_Frozen):
    """Arguments of Airflow's tasks, by Airflow's names. None: Floodmark's own argument, or Airflow's."""

    owner: str | None = Field(default=None, min_length=1)
    """The owner that Airflow shows."""
    retries: NonNegativeInt | None = None
    """The number of attempts after the first one."""
    retry_delay: Duration | None = None
    """The time before the second attempt."""
    retry_exponential_backoff: float | None = Field(default=None, ge=0)
    """The factor by which the delay grows with each attempt; 0: it stays the same."""
    max_retry_delay: Duration | None = None
    """The longest delay."""
    execution_timeout: Duration | None = None
    """The longest time of one attempt. A task that takes longer fails, and is retried."""
    queue: str | None = Field(default=None, min_length=1)
    """The queue, where the executor has several."""
    priority_weight: PositiveInt | None = None
    """The weight against tasks of other DAGs in the same pool."""
    executor: str | None = Field(default=None, min_length=1)
    """The name or alias of one of Airflow's executors, where it has several."""
    executor_config: dict[str, Any] | None = None
    """Settings for that executor, as it documents them."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that are set."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


class LoadArgs(TaskArgs):
    """Arguments of the task ``load`` alone; they have precedence over those of all tasks."""

    conf: dict[str, str] | None = None
    """Properties of Spark, in addition to those of the connection ``spark_default``."""


class AirflowConfig(_Frozen):
    """The section ``airflow``: how Airflow runs the DAGs of the pipeline."""

    timezone: TimeZone = "UTC"
    """The time zone of ``schedule``."""
    after_assets: tuple[AssetUri, ...] = ()
    """URIs of Airflow's assets, in place of ``schedule``: a run begins when each of them was updated."""
    tags: tuple[TagName, ...] = ()
    """Tags of the DAGs, in addition to Floodmark's."""
    default_args: TaskArgs = TaskArgs()
    """Arguments of all tasks."""
    load_operator_args: LoadArgs = LoadArgs()
    """Arguments of the task ``load``."""
