"""The history of a table on its page: its windows in words, and the data of its charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from floodmark.app.status_texts import changed_text, duration_text
from floodmark.core.status.history import TableWindow
from floodmark.core.upkeep.change_table import format_bytes

_STEPS = (
    ("load", "opened_at", "merged_at"),
    ("check", "merged_at", "checked_at"),
    ("publish", "checked_at", "advanced_at"),
)
_OPERATIONS = ("inserted", "updated", "deleted")
_MEASURES = (
    ("lag_seconds", "Lag at publication", "s"),
    ("margin_seconds", "Margin before cleanup", "s"),
    ("change_bytes", "Size of the change tables", "B"),
    ("change_rows", "Rows of the change tables", "rows"),
)


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A window, in words."""

    number: str
    kind: str
    state: str
    opened_at: str
    load: str
    check: str
    publish: str
    read: str
    changed: str
    quarantined: str
    lag: str
    margin: str
    change_table: str
    dag_id: str
    run_id: str
    """Empty where no run of Airflow worked on the window."""


def window_rows(windows: Sequence[TableWindow]) -> list[WindowRow]:
    """Return the windows, the newest first."""
    return [_row(each) for each in reversed(windows)]


def charts_of(windows: Sequence[TableWindow]) -> list[dict[str, Any]]:
    """Return the charts as the page's script takes them. Only published windows are in them.

    Each has ``title``, ``unit``, ``times`` (ISO 8601, UTC), and ``series``: ``name``, ``color`` (a variable of the
    style) and ``values``, one for each window, None for a gap. A chart without any value is left out.
    """
    done = [each for each in windows if each.advanced_at is not None]
    rows = {name: [getattr(each, f"{name}_rows") for each in done] for name in _OPERATIONS}
    seconds = {name: [_seconds(each, since, until) for each in done] for name, since, until in _STEPS}
    times = [each.opened_at.isoformat() for each in done]
    charts = [
        _chart("Rows of each window", "rows", times, rows, 0),
        _chart("Duration of each window", "s", times, seconds, len(rows)),
    ]
    for color, (field, title, unit) in enumerate(_MEASURES, len(rows) + len(seconds)):
        values = [getattr(each, field) for each in done]
        if any(value is not None for value in values):
            charts.append(_chart(title, unit, times, {title.lower(): values}, color))
    return charts


def _chart(title: str, unit: str, times: Sequence[str], values: dict[str, list[Any]], first: int) -> dict[str, Any]:
    series = [
        {"name": name, "color": f"--chart-{number}", "values": each}
        for number, (name, each) in enumerate(values.items(), first)
    ]
    return {"title": title, "unit": unit, "times": times, "series": series}


def _row(window: TableWindow) -> WindowRow:
    took = {name: _step_text(window, since, until) for name, since, until in _STEPS}
    lane = f", {window.lane}" if window.lane else ""
    return WindowRow(
        number=f"{window.window_id}",
        kind=f"{window.kind.replace('_', ' ')}{lane}",
        state="published" if window.state == "advanced" else f"{window.state}, attempt {window.attempt}",
        opened_at=f"{window.opened_at:%Y-%m-%d %H:%M:%S}",
        read=f"{window.read_rows:,}",
        changed=changed_text(window.inserted_rows, window.updated_rows, window.deleted_rows),
        quarantined=f"{window.quarantined_rows:,}" if window.quarantined_rows else "",
        lag=_seconds_text(window.lag_seconds if window.state == "advanced" else None),
        margin=duration_text(window.margin_seconds),
        change_table=_change_table(window),
        dag_id=window.dag_id or "",
        run_id=window.run_id or "",
        **took,
    )


def _step_text(window: TableWindow, since: str, until: str) -> str:
    return _seconds_text(_seconds(window, since, until))


def _change_table(window: TableWindow) -> str:
    parts = [] if window.change_rows is None else [f"{window.change_rows:,} rows"]
    parts += [] if window.change_bytes is None else [format_bytes(window.change_bytes)]
    return ", ".join(parts) or "-"


def _seconds_text(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds)


def _seconds(window: TableWindow, since: str, until: str) -> float | None:
    begun: datetime | None = getattr(window, since)
    ended: datetime | None = getattr(window, until)
    return None if begun is None or ended is None else round((ended - begun).total_seconds(), 3)
