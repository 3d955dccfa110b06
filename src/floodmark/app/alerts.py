"""Alerts outside of a step, with their channels and a test message, and the metrics of a run."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from floodmark.airflow_connections import may_have_option, read_connection, read_flag, required_field
from floodmark.config.models import AppriseConfig, ChannelConfig, EmailConfig, WebhookConfig
from floodmark.core.alert import Alert, build_raised_message
from floodmark.core.alerts import LAG, RUN_FAILED, RunFailure, is_about_tables, lag, run_failed
from floodmark.core.errors import (
    ConfigError,
    FloodmarkBugError,
    FloodmarkError,
    NotCapturedYetError,
    SourceLoginError,
    SourceUnavailableError,
    WindowBusyError,
)
from floodmark.core.progress import SourceProgress
from floodmark.core.status import measure_tables
from floodmark.core.upkeep import table_sizes
from floodmark.sync.alerts import report_left_out
from floodmark.sync.ports import Metrics

if TYPE_CHECKING:
    from floodmark.app.pipeline import App, Pipeline
    from floodmark.config.models import Config, PipelineConfig
    from floodmark.core.alert import AlertMessage
    from floodmark.core.plan import AdvanceResult
    from floodmark.core.schema import TableName
    from floodmark.core.status import TableMeasure
    from floodmark.sync.alerts import Channel, OpenAlert

_LOG = logging.getLogger(__name__)


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
# The links of a message: to the page of its table or pipeline, and to the run of Airflow that it is about.


STATUS_PAGE = "/floodmark/status"
_RUN = re.compile(r"DAG (?P<dag>.+?), run (?P<run>.+?)(, task .*)?")


def alert_links(config: Config, alert: Alert) -> Sequence[tuple[str, str]]:
    """Return a heading and an address each; nothing where the address of Airflow is not known."""
    base = _base_url()
    if not base:
        return ()
    pipeline, page = config.pipelines.get(alert.subject), f"{base}{STATUS_PAGE}"
    if pipeline is not None:
        page += f"/{quote(alert.subject, safe='')}"
        if alert.table is not None and _is_shown(pipeline, alert.table):
            page += f"/{quote(str(alert.table), safe='')}"
    run = _RUN.fullmatch(alert.where)
    dag_id, run_id = run.group("dag", "run") if run else (os.environ.get(name, "") for name in _CONTEXT)
    runs = [("Run", f"{base}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}")] if dag_id and run_id else []
    return [("Page", page), *runs]


def _is_shown(pipeline: PipelineConfig, table: TableName) -> bool:
    """Return whether a table may have a page: an entry of its own, or one with a pattern."""
    names = {str(each.source) for each in pipeline.named_tables}
    return str(table) in names or any(each.entry.takes(table) for each in pipeline.patterns)


_CONTEXT = ("AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_DAG_RUN_ID")
"""The variables by which a task knows its run."""


def _base_url() -> str:
    """Return the address of Airflow's pages as it is configured, without importing Airflow."""
    base = os.environ.get("AIRFLOW__API__BASE_URL", "")
    if not base and (airflow := sys.modules.get("airflow.sdk.configuration")):
        base = airflow.conf.get("api", "base_url", fallback="") or ""
    return base.rstrip("/")


# --------------------------------------------------------------------------------------------------------------------
# A test message for the channels, the open alerts, and the alerts about a failed run.


_PRINTED = "See the output of the command."


def send_test_message(app: App) -> Mapping[str, str]:
    """Send a message to every channel. Return by channel name why it was not accepted, "" where it was."""
    alert = Alert(
        kind="test",
        subject="floodmark",
        what="A test message was sent to every channel.",
        means="This channel works.",
        do="Nothing.",
        event_key="test",
    )
    message = build_raised_message(alert, datetime.now(UTC))
    return {channel.name: _try(channel, message) for channel in app.channels}


def list_open_alerts(app: App) -> Sequence[OpenAlert]:
    """Return the open alerts about the pipelines and sources of the configuration, the oldest first."""
    subjects = {*app.config.pipelines, *app.config.sources}
    return [each for each in app.alert_ledger.list_open() if each.alert.subject in subjects]


def close_alert(app: App, name: str, reason: str, by: str) -> OpenAlert:
    """End an open alert by a decision of the operator, with a message to the channels. Return the alert.

    name: its event key, or the beginning of it, such as its kind, if only one open alert has it. Raises ConfigError.
    """
    if not reason.strip():
        raise ConfigError(name, "an alert is closed with a reason.", "Give --reason.")
    found = list_open_alerts(app)
    named = [each for each in found if each.alert.event_key == name] or [
        each for each in found if each.alert.event_key.startswith(f"{name}:")
    ]
    if len(named) != 1:
        open_keys = ", ".join(each.alert.event_key for each in named or found)
        problem = f"{len(named)} open alerts begin with this name" if named else "no open alert has this name"
        raise ConfigError(name, f"{problem}.", f"There are: {open_keys}." if open_keys else "No alert is open.")
    (closed,) = named
    app.alert_ledger.drop_parts(closed.alert.event_key)
    app.alerts.end_alert(closed.alert.event_key, f"{by} closed it: {reason.strip()}")
    return closed


def _try(channel: Channel, message: AlertMessage) -> str:
    try:
        channel.send(message)
    except FloodmarkError as error:
        return str(error)
    return ""


@contextmanager
def reported_failure(pipeline: Pipeline) -> Iterator[None]:
    """Raise the alert about a failed run when the block fails; what was raised goes on to the caller.

    It is the same alert that a failed run in Airflow raises. It ends when any run succeeds. Airflow raises it after the
    last retry of a run; a command has no retries. No alert is raised where another run is active, or where there is
    nothing to read yet.
    """
    try:
        yield
    except (NotCapturedYetError, WindowBusyError):
        raise
    except FloodmarkError as error:
        _report(pipeline, error)
        raise
    except Exception as error:
        _report(pipeline, FloodmarkBugError(pipeline.name, f"the run ended with {type(error).__name__}.", _PRINTED))
        raise


def _report(pipeline: Pipeline, error: FloodmarkError) -> None:
    if report_tables(pipeline) and is_about_tables(RunFailure.of(error)):
        return
    alert = run_failed(RUN_FAILED, pipeline.name, RunFailure.of(error), dag_id="", run_id="", task_id="")
    where = f"pipeline {pipeline.name}, floodmark run on {socket.gethostname()}"
    pipeline.alerts.raise_alert(replace(alert, where=where, do=error.hint or _PRINTED))


def report_tables(pipeline: Pipeline) -> bool:
    """Raise the alerts about the tables that are left out, after a run that failed. Return whether there are any.

    An error is only logged.
    """
    try:
        return bool(report_left_out(pipeline.settings, pipeline.ledger, pipeline.alerts))
    except FloodmarkError as error:
        _LOG.warning("Could not check which tables of %s are left out: %s", pipeline.name, error)
        return False


# --------------------------------------------------------------------------------------------------------------------
# The lag of each table after a run: as metrics and, beyond the pipeline's ``max_lag``, as an alert.
#
# The source is queried once more, so this is done only where something receives the result. It never fails the run that
# it follows.


_NOT_MEASURED = (SourceUnavailableError, SourceLoginError, NotCapturedYetError)
"""After these errors the lag is not measured: the source was unreachable a moment ago, or has captured nothing yet."""


@contextmanager
def measured(pipeline: Pipeline) -> Iterator[None]:
    """Measure the lag when the step of a run in the block fails, because the lag then grows.

    The error of the step is raised, whether or not the measurement succeeds.
    """
    try:
        yield
    except _NOT_MEASURED:
        raise
    except FloodmarkError as error:
        try:
            measure_run(pipeline)
        finally:
            raise error


def measure_run(pipeline: Pipeline, result: AdvanceResult | None = None) -> None:
    """Measure the tables of a pipeline. result: the window that the run published, if any."""
    metrics = pipeline.app.metrics
    sending = metrics.are_on()
    try:
        if sending and result is not None:
            metrics.send_window(result, pipeline.ledger.read_window_seconds(result.window_id))
        if sending or pipeline.config.max_lag is not None:
            _measure(pipeline, sending=sending)
    except FloodmarkError as error:
        _LOG.warning("Could not measure the lag of pipeline %s: %s", pipeline.name, error)


def _measure(pipeline: Pipeline, *, sending: bool) -> None:
    marks = pipeline.ledger.list_table_marks(pipeline.name)
    # The positions of the log alone: no table is read.
    snapshot = pipeline.source.snapshots().read_snapshot(())
    # While such a source is quiet, only its first change after a watermark shows how late a table is.
    watermarks = {mark.watermark for mark in marks if mark.watermark} if snapshot.is_synchronous else ()
    progress = SourceProgress({}, None)
    if sending or watermarks:
        progress = pipeline.source.read_progress(watermarks, pipeline.ledger.list_marks(pipeline.name))
    if sizes := table_sizes([mark.table for mark in marks], progress.sizes):
        pipeline.app.mark_ledger.record_sizes(pipeline.name, sizes)
    measures = measure_tables(marks, snapshot, progress)
    if sending:
        pipeline.app.metrics.send_measures(pipeline.name, measures)
    if pipeline.config.max_lag is None:
        return
    limit = pipeline.config.max_lag.total_seconds()
    late = [each for each in measures if each.lag_seconds is not None and each.lag_seconds > limit]
    if late:
        pipeline.alerts.raise_alert(lag(pipeline.name, late, limit, snapshot.taken_at))
    else:
        pipeline.alerts.end_alerts(LAG, pipeline.name)


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


class AirflowMetrics(Metrics):
    """``sync.ports.Metrics``."""

    def are_on(self) -> bool:
        switches = [("metrics", name) for name in ("statsd_on", "otel_on", "statsd_datadog_enabled")]
        # A command with no metrics need not import Airflow.
        if "airflow.sdk" not in sys.modules and not may_have_option(*switches):
            return False
        from airflow.sdk.configuration import conf

        return any(conf.getboolean(*each) for each in switches)

    def send_window(self, result: AdvanceResult, seconds: float | None) -> None:
        from airflow.sdk.observability.stats import Stats

        for table in result.tables:
            counts = asdict(table.counts)
            for name in ROWS:
                stat, tags = _named(f"{TABLE_METRIC}{name}", result.pipeline, table.source)
                Stats.incr(stat, counts[name], tags=tags)
        if seconds is not None:
            stat, tags = _named(WINDOW_METRIC, result.pipeline)
            # In milliseconds like StatsD's timers; Airflow passes a number on unchanged.
            Stats.timing(stat, seconds * 1000.0, tags=tags)

    def send_measures(self, pipeline: str, measures: Iterable[TableMeasure]) -> None:
        from airflow.sdk.observability.stats import Stats

        for each in measures:
            for name in GAUGES:
                value: float | None = getattr(each, name)
                if value is not None:
                    stat, tags = _named(f"{TABLE_METRIC}{name}", pipeline, each.table)
                    Stats.gauge(stat, round(value, 3), tags=tags)


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
