"""The page of the metrics, from the fields that are sent."""

from __future__ import annotations

from documents.source_text import module_of, table, text_of
from floodmark.app import alerts
from floodmark.core.plan import TableCounts
from floodmark.core.status import TableMeasure

_UNITS = {"rows": "rows", "seconds": "seconds", "bytes": "bytes", "messages": "messages"}
"""The unit by the last word of a name. A name without a unit stops the generator."""


def metrics_page() -> str:
    """Return the page."""
    duration = text_of(module_of(alerts.__name__).attributes["WINDOW_METRIC"])
    lines = [
        "# Metrics",
        "",
        "Airflow sends them to StatsD, Datadog or OpenTelemetry, as it is configured; else nothing is measured.",
        "A value that is unknown is not sent. [Metrics](../operations.md#metrics) has the settings.",
        "",
        *_section("Counters", "Of each table, when a window has been published", alerts.ROWS, TableCounts),
        *_section("Gauges", "Of each table, when a run has ended", alerts.GAUGES, TableMeasure),
        "## Timers",
        "",
        "Of each window, when it has been published. Tag: `pipeline`.",
        "",
        *table(["metric", "unit", "meaning"], [[f"`{alerts.WINDOW_METRIC}`", "milliseconds", duration]]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _section(title: str, sent: str, names: tuple[str, ...], model: type) -> list[str]:
    rows = [_row(name, model) for name in names]
    return [f"## {title}", "", f"{sent}. Tags: `pipeline`, `table`.", "", *table(["metric", "unit", "meaning"], rows)]


def _row(name: str, model: type) -> list[str]:
    field = module_of(model.__module__).classes[model.__name__].attributes[name]
    return [f"`{alerts.TABLE_METRIC}{name}`", _UNITS[name.rpartition("_")[2]], text_of(field)]
