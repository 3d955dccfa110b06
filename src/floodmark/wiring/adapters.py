"""The adapters of a configuration: channels, metrics, alerts, warehouses, and the pipeline that they make."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import floodmark
from floodmark.airflow_connections import read_connection, read_flag, required_field
from floodmark.config.models import AppriseConfig, ChannelConfig, EmailConfig, WebhookConfig
from floodmark.core.errors import ConfigError
from floodmark.core.schema import Dataset, table_dataset
from floodmark.core.settings import KIND_VARIABLE, LEDGER_VARIABLE, SOURCE_VARIABLE, WAREHOUSE_VARIABLE
from floodmark.sources.kind import SourceKind, find_kind
from floodmark.sync.alerts import AlertService
from floodmark.wiring.connections import warehouse_connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from sqlalchemy import URL

    from floodmark.config.models import Config
    from floodmark.core.alert import AlertMessage
    from floodmark.core.plan import AdvanceResult
    from floodmark.core.schema import TableName
    from floodmark.core.settings import PipelineSettings
    from floodmark.core.status import TableMark, TableMeasure
    from floodmark.core.types import WarehouseType
    from floodmark.postgres.ledger.drift import PostgresDriftLedger, PostgresSwitchLedger
    from floodmark.postgres.ledger.ledger import PostgresLedger, PostgresUpkeepLedger
    from floodmark.postgres.ledger.status import PostgresAlertLedger, PostgresMarkLedger, PostgresStatusLedger
    from floodmark.postgres.session import WarehouseConnection
    from floodmark.postgres.warehouse.release import PostgresQuarantine
    from floodmark.postgres.warehouse.targets import PostgresAdoption, PostgresTargets
    from floodmark.postgres.warehouse.verify import PostgresRowComparer
    from floodmark.sync.alerts import AlertNotes, Alerts, Channel

    pass
    from floodmark.sync.ports import Quality, Warehouse

    pass


# --------------------------------------------------------------------------------------------------------------------
# The channels of alerts, each from its Airflow connection.


_SLACK = "https://hooks.slack.com/services"


class ConnectedChannel:
    """``sync.alerts.Channel``. The connection is read at each send, so a wrong one fails only this channel."""

    def __init__(self, config: ChannelConfig) -> None:
        self.name = config.label
        self._config = config

    def send(self, message: AlertMessage) -> None:
        _open(self._config).send(message)


def _open(config: ChannelConfig) -> Channel:
    match config:
        case EmailConfig():
            return _open_email(config)
        case WebhookConfig():
            return _open_webhook(config)
        case AppriseConfig():
            return _open_apprise(config)


def _open_email(config: EmailConfig) -> Channel:
    """Return an e-mail channel from a connection of the SMTP provider.

    Extras: from_email, disable_ssl and disable_tls (which is STARTTLS).
    """
    from floodmark.channels import MailServer, email_channel

    found = read_connection(config.conn_id, "smtp")
    extras = found.extra_dejson
    plain = read_flag(extras.get("disable_tls", False), config.conn_id, "disable_tls")
    without_ssl = read_flag(extras.get("disable_ssl", False), config.conn_id, "disable_ssl")
    sender = config.sender or extras.get("from_email") or ""
    if not sender:
        raise ConfigError(
            f"connection {config.conn_id}", "it has no from_email, and the channel no sender.", "Set one of them."
        )
    server = MailServer(
        host=required_field(found.host, config.conn_id, "host"),
        port=found.port,
        user=found.login or "",
        password=found.password or "",
        mode="ssl" if not without_ssl else "insecure" if plain else "starttls",
    )
    return email_channel(config.label, server, sender, config.to)


def _open_webhook(config: WebhookConfig) -> Channel:
    """Return a webhook channel. The address is the password, or host and password, as in Airflow's Slack provider."""
    from floodmark.channels import webhook_channel

    found = read_connection(config.conn_id, "slackwebhook", "http")
    token = required_field(found.password, config.conn_id, "password (the address of the webhook, or its token)")
    base = found.host or _SLACK
    if "://" not in base:
        base = f"{found.schema or 'https'}://{base}" + (f":{found.port}" if found.port else "")
    url = token if "://" in token else f"{base.rstrip('/')}/{token.lstrip('/')}"
    # Libraries that log requests, at level DEBUG, log only the path.
    _mask(urlsplit(url).path)
    return webhook_channel(config.label, url)


def _open_apprise(config: AppriseConfig) -> Channel:
    from floodmark.channels import apprise_channel

    found = read_connection(config.conn_id, "apprise", "generic")
    url = required_field(found.password, config.conn_id, "password (a URL of apprise)")
    for part in urlsplit(url).path.split("/"):
        _mask(part)
    return apprise_channel(config.label, url)


def _mask(secret: str) -> None:
    from airflow.sdk.log import mask_secret

    if len(secret.strip("/")) >= _SHORTEST_MASKED:
        mask_secret(secret)


_SHORTEST_MASKED = 6
"""The length below which a part is not masked: it may be a common word of the log."""


# --------------------------------------------------------------------------------------------------------------------
# The locations of the configuration and the data docs, from the environment or by default.


CONFIG_VARIABLE = "FLOODMARK_CONFIG"
DATA_DOCS_VARIABLE = "FLOODMARK_DATA_DOCS"
_DEFAULT_CONFIG = Path("include", "pipelines.yaml")


def config_path() -> Path:
    """Return the path in FLOODMARK_CONFIG, else ``include/pipelines.yaml``.

    The default is that of the clone from which this package is installed; for a wheel, that of the working directory.
    """
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen:
        return Path(chosen).resolve()
    of_clone = Path(floodmark.__file__).resolve().parents[2] / _DEFAULT_CONFIG
    return of_clone if of_clone.is_file() else _DEFAULT_CONFIG.resolve()


def data_docs_dir() -> Path:
    """Return the path in FLOODMARK_DATA_DOCS, else a folder of the user's state."""
    chosen = os.environ.get(DATA_DOCS_VARIABLE)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(chosen).resolve() if chosen else Path(state) / "floodmark" / "data_docs"


# --------------------------------------------------------------------------------------------------------------------
# The adapters of a warehouse and of the ledger, by the kind of the warehouse.


@dataclass(frozen=True)
class PostgresLedgerWiring:
    """The ledger in PostgreSQL. No connection is opened before an adapter is used."""

    conn_id: str
    """The id of the connection in Airflow."""

    def connection(self) -> WarehouseConnection:
        """Return the connection. Raises ConfigError."""
        return warehouse_connection(self.conn_id)

    def kept_sessions(self) -> AbstractContextManager[None]:
        """Use one session for the transactions of one step, until the block ends."""
        from floodmark.postgres.session import kept_sessions

        return kept_sessions()

    def windows(self) -> PostgresLedger:
        from floodmark.postgres.ledger.ledger import PostgresLedger

        return PostgresLedger(self.connection())

    def replays(self) -> PostgresLedger:
        from floodmark.postgres.ledger.ledger import PostgresLedger

        return PostgresLedger(self.connection())

    def alerts(self) -> PostgresAlertLedger:
        from floodmark.postgres.ledger.status import PostgresAlertLedger

        return PostgresAlertLedger(self.connection())

    def drift(self) -> PostgresDriftLedger:
        from floodmark.postgres.ledger.drift import PostgresDriftLedger

        return PostgresDriftLedger(self.connection())

    def switches(self) -> PostgresSwitchLedger:
        from floodmark.postgres.ledger.drift import PostgresSwitchLedger

        return PostgresSwitchLedger(self.connection())

    def stops(self) -> PostgresUpkeepLedger:
        from floodmark.postgres.ledger.ledger import PostgresUpkeepLedger

        return PostgresUpkeepLedger(self.connection())

    def marks(self) -> PostgresMarkLedger:
        from floodmark.postgres.ledger.status import PostgresMarkLedger

        return PostgresMarkLedger(self.connection())

    def status(self) -> PostgresStatusLedger:
        from floodmark.postgres.ledger.status import PostgresStatusLedger

        return PostgresStatusLedger(self.connection())

    def list_alert_parts(self, kind: str, subject: str) -> Sequence[str]:
        """Return the open parts of all alerts of a kind about a subject."""
        from floodmark.postgres.ledger.status import PostgresAlertLedger

        return PostgresAlertLedger(self.connection()).list_parts(kind, subject)

    def list_table_marks(self, pipeline: str) -> Sequence[TableMark]:
        """Return the marks of the tables that a run has included."""
        from floodmark.postgres.ledger.ledger import list_table_marks

        return list_table_marks(self.connection(), pipeline)

    def record_sizes(self, pipeline: str, sizes: Mapping[TableName, tuple[int | None, int | None]]) -> None:
        """Record rows and bytes of the change tables in the newest window of each table."""
        from floodmark.postgres.ledger.ledger import record_sizes

        record_sizes(self.connection(), pipeline, sizes)

    def read_window_seconds(self, window_id: int) -> float | None:
        """Return the time of a window from planning to publication; None while it is unfinished."""
        from floodmark.postgres.ledger.ledger import read_window_seconds

        return read_window_seconds(self.connection(), window_id)


@dataclass(frozen=True)
class PostgresWarehouseWiring:
    """A warehouse of kind ``postgres``. No connection is opened before an adapter is used."""

    conn_id: str
    """The id of the connection in Airflow."""
    ledger: PostgresLedgerWiring
    """A merge and its record are one transaction: it must be in the same database."""

    def connection(self) -> WarehouseConnection:
        """Return the connection. Raises ConfigError."""
        return warehouse_connection(self.conn_id)

    def windows(self) -> Warehouse:
        """Raises ConfigError where the ledger is in another database."""
        from floodmark.postgres.warehouse.warehouse import PostgresWarehouse

        connection, ledger = self.connection(), self.ledger.connection()
        place, ledger_place = (f"{each.host}:{each.port}/{each.database}" for each in (connection, ledger))
        if place != ledger_place:
            raise ConfigError(
                f"connection {self.ledger.conn_id}",
                f"the ledger is in {ledger_place}, and the warehouse in {place}.",
                "A warehouse of kind postgres keeps the ledger in its own database: name that one, or omit ledger.",
            )
        return PostgresWarehouse(connection)

    def name_datasets(self) -> Callable[[TableName], Dataset]:
        """Return the function that names a target. Raises ConfigError."""
        at = self.connection()
        return lambda target: table_dataset("postgres", at.host, at.port, at.database, target)

    def type_name(self, kind: WarehouseType) -> str:
        """Return the warehouse's own name of a type."""
        from floodmark.postgres.warehouse.targets import postgres_type

        return postgres_type(kind)

    def sql_url(self) -> URL:
        """Return the address for the SQL of checks, with the password."""
        from floodmark.postgres.url import sqlalchemy_url

        return sqlalchemy_url(self.connection())

    def read_encoding(self) -> str:
        """Return the encoding of the database, such as UTF8. Raises ConfigError, or the error of a connection."""
        from floodmark.postgres.session import read_encoding

        return read_encoding(self.connection())

    def comparer(self) -> PostgresRowComparer:
        from floodmark.postgres.warehouse.verify import PostgresRowComparer

        return PostgresRowComparer(self.connection())

    def quarantine(self) -> PostgresQuarantine:
        from floodmark.postgres.warehouse.release import PostgresQuarantine

        return PostgresQuarantine(self.connection())

    def adoption(self) -> PostgresAdoption:
        from floodmark.postgres.warehouse.targets import PostgresAdoption

        return PostgresAdoption(self.connection())

    def targets(self) -> PostgresTargets:
        from floodmark.postgres.warehouse.targets import PostgresTargets

        return PostgresTargets(self.connection())


WAREHOUSES = {"postgres": PostgresWarehouseWiring}
"""By the kind that the configuration says."""


# --------------------------------------------------------------------------------------------------------------------
# One pipeline with the adapters of its source, its ledger and its warehouse.


@dataclass(frozen=True)
class PipelineWiring:
    """A pipeline of the configuration. No connection is opened before an adapter is used."""

    settings: PipelineSettings
    freshness_seconds: float
    """The age of the newest rows above which the pipeline counts as late."""
    source: SourceKind
    ledger: PostgresLedgerWiring
    warehouse: PostgresWarehouseWiring

    def job_secrets(self) -> Mapping[str, str]:
        """Return the kind of the source, and connections as JSON with their passwords, by the load job's variables."""
        return {
            KIND_VARIABLE: self.source.name,
            SOURCE_VARIABLE: self.source.connection().to_json(),
            LEDGER_VARIABLE: self.ledger.connection().to_json(),
            WAREHOUSE_VARIABLE: self.warehouse.connection().to_json(),
        }

    def quality(self) -> Quality:
        from floodmark.quality.great_expectations import GreatExpectationsQuality

        return GreatExpectationsQuality(
            self.warehouse.sql_url(),
            self.warehouse.windows().open_rows,
            data_docs_dir(),
            freshness_seconds=self.freshness_seconds,
        )


def wire(config: Config, pipeline: str) -> PipelineWiring:
    """Return the wiring of a pipeline. Raises ConfigError for a pipeline that is not in the configuration."""
    return PipelineWiring(
        settings=config.settings(pipeline),
        freshness_seconds=config.pipeline(pipeline).freshness.total_seconds(),
        source=wire_source(config, config.pipeline(pipeline).source),
        ledger=wire_ledger(config),
        warehouse=wire_warehouse(config),
    )


def wire_source(config: Config, source: str, conn_id: str | None = None) -> SourceKind:
    """Return the adapters of a source by its name in the configuration.

    conn_id: the connection for its upkeep, where it is not that of the source.
    """
    found = config.sources[source]
    kind = find_kind(found.kind)
    return kind(conn_id or found.conn_id, **{key: getattr(found, key) for key in kind.rules.required})


def wire_ledger(config: Config) -> PostgresLedgerWiring:
    """Return the adapters of the ledger: by default it is reached by the warehouse's connection."""
    return PostgresLedgerWiring(config.ledger.conn_id if config.ledger else config.warehouse.conn_id)


def wire_warehouse(config: Config) -> PostgresWarehouseWiring:
    """Return the adapters of the warehouse."""
    return WAREHOUSES[config.warehouse.kind](config.warehouse.conn_id, wire_ledger(config))


# --------------------------------------------------------------------------------------------------------------------
# The alerts of a configuration, with its ledger and its channels.


def wire_alerts(config: Config, notes: AlertNotes) -> Alerts:
    """Return the alerts about the sources and pipelines of the configuration.

    No connection is opened before an alert is raised or ended.
    """

    def ledger() -> PostgresAlertLedger:
        return wire_ledger(config).alerts()

    return AlertService(ledger, wire_channels(config), notes, {*config.pipelines, *config.sources})


def wire_channels(config: Config) -> Sequence[Channel]:
    """Return the channels besides the log."""
    return [ConnectedChannel(channel) for channel in config.alerts.channels]


# --------------------------------------------------------------------------------------------------------------------
# ``AirflowMetrics``: metrics sent by Airflow: to StatsD, Datadog or OpenTelemetry, as Airflow is configured.
#
# Pipeline and table are tags where the receiver keeps tags. Plain StatsD drops tags, so they are appended to the names.


ROWS = ("read_rows", "inserted_rows", "updated_rows", "deleted_rows", "unchanged_rows", "quarantined_rows")
"""The counters: fields of ``TableCounts``, of each table of a published window."""
GAUGES = ("lag_seconds", "headroom_seconds", "change_rows", "change_bytes", "unread_messages")
"""The gauges: fields of ``TableMeasure``, of each table of the pipeline. One that is unknown is not sent."""
TABLE_METRIC = "floodmark.table."
WINDOW_METRIC = "floodmark.window.duration"
"""The timer: the time from the planning of a window to its publication, failed runs in between included."""


class AirflowMetrics:
    """``sync.ports.Metrics``."""

    def are_on(self) -> bool:
        from airflow.sdk.configuration import conf

        return any(conf.getboolean("metrics", name) for name in ("statsd_on", "otel_on", "statsd_datadog_enabled"))

    def send_window(self, result: AdvanceResult, seconds: float | None) -> None:
        from airflow.sdk.observability import stats

        for table in result.tables:
            counts = asdict(table.counts)
            for name in ROWS:
                stat, tags = _named(f"{TABLE_METRIC}{name}", result.pipeline, table.source)
                stats.incr(stat, counts[name], tags=tags)
        if seconds is not None:
            stat, tags = _named(WINDOW_METRIC, result.pipeline)
            # In milliseconds like StatsD's timers; Airflow passes a number on unchanged.
            stats.timing(stat, seconds * 1000.0, tags=tags)

    def send_measures(self, pipeline: str, measures: Iterable[TableMeasure]) -> None:
        from airflow.sdk.observability import stats

        for each in measures:
            for name in GAUGES:
                value: float | None = getattr(each, name)
                if value is not None:
                    stat, tags = _named(f"{TABLE_METRIC}{name}", pipeline, each.table)
                    stats.gauge(stat, round(value, 3), tags=tags)


def _named(name: str, pipeline: str, table: TableName | None = None) -> tuple[str, dict[str, str]]:
    """Return name and tags without characters for which Airflow or one form of StatsD drops a metric."""
    parts = [re.sub(r"[^A-Za-z0-9_-]", "_", part) for part in (table.schema, table.name)] if table else []
    tags = {"pipeline": pipeline} | ({"table": ".".join(parts)} if table else {})
    if _tags_are_kept():
        return name, tags
    return ".".join((name, pipeline.replace(".", "_"), *parts)), tags


def _tags_are_kept() -> bool:
    from airflow.sdk.configuration import conf

    # In the order of precedence of Airflow.
    if conf.getboolean("metrics", "statsd_datadog_enabled"):
        return bool(conf.getboolean("metrics", "statsd_datadog_metrics_tags", fallback=True))
    if conf.getboolean("metrics", "statsd_on"):
        return bool(conf.getboolean("metrics", "statsd_influxdb_enabled", fallback=False))
    return True
