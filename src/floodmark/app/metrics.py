"""The lag of each table after a run, and the metrics that Airflow sends."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from floodmark.core.alerts import LAG, lag
from floodmark.core.errors import FloodmarkError, NotCapturedYetError, SourceLoginError, SourceUnavailableError
from floodmark.core.progress import SourceProgress
from floodmark.core.status import measure_tables
from floodmark.core.upkeep import table_sizes

if TYPE_CHECKING:
    from floodmark.app.pipeline import Pipeline
    from floodmark.core.plan import AdvanceResult
    from floodmark.core.schema import TableName
    from floodmark.core.status import TableMeasure

_LOG = logging.getLogger(__name__)


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
