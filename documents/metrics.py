"""The page of the metrics, from the fields that are sent."""

from __future__ import annotations

from documents.source_text import module_of, table, text_of
from floodmark.core.status.measures import TableMeasure
from floodmark.core.window.plan import TableCounts
from floodmark.wiring import metrics

_UNITS = {"rows": "rows", "seconds": "seconds", "bytes": "bytes"}
"""The unit by the last word of a name. A name without a unit stops the generator."""


def metrics_page() -> str:
    """Return the page."""
    rows = [
        *(_row(name, "counter", "at each published window", TableCounts) for name in metrics.ROWS),
        *(_row(name, "gauge", "at the end of a run", TableMeasure) for name in metrics.GAUGES),
        [
            f"`{metrics.WINDOW_METRIC}`",
            "timer",
            "milliseconds",
            "`pipeline`",
            "at each published window",
            text_of(module_of(metrics.__name__).attributes["WINDOW_METRIC"]),
        ],
    ]
    return (
        "\n".join(
            [
                "# Metrics",
                "",
                "Airflow sends them, to StatsD, Datadog or OpenTelemetry as it is configured; without that nothing is",
                "measured. A value that is unknown is not sent. [Metrics](../operations.md#metrics) has the settings.",
                "",
                *table(["metric", "kind", "unit", "tags", "sent", "meaning"], rows),
            ]
        ).rstrip()
        + "\n"
    )


def _row(name: str, kind: str, sent: str, model: type) -> list[str]:
    field = module_of(model.__module__).classes[model.__name__].attributes[name]
    unit = _UNITS[name.rpartition("_")[2]]
    return [f"`{metrics.TABLE_METRIC}{name}`", kind, unit, "`pipeline`, `table`", sent, text_of(field)]
