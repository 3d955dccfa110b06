"""``AirflowMetrics``: metrics sent by Airflow: to StatsD, Datadog or OpenTelemetry, as Airflow is configured.

Pipeline and table are tags where the receiver keeps tags. Plain StatsD drops tags, so they are appended to the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.core.schema import TableName
    from floodmark.core.status.measures import TableMeasure
    from floodmark.core.window.published import AdvanceResult

ROWS = ("read_rows", "inserted_rows", "updated_rows", "deleted_rows", "unchanged_rows", "quarantined_rows")
"""The counters: fields of ``TableCounts``, of each table of a published window."""
GAUGES = ("lag_seconds", "headroom_seconds", "change_rows", "change_bytes", "unread_messages")
"""The gauges: fields of ``TableMeasure``, of each table of the pipeline. One that is unknown is not sent."""
TABLE_METRIC = "floodmark.table."
WINDOW_METRIC = "floodmark.window.duration"
"""The timer: the time from the planning of a window to its publication, failed runs in between included."""


class AirflowMetrics:
    """``sync.ports.metrics.Metrics``."""

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
