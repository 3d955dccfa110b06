"""The terminal tables of the CLI, and the same facts as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from floodmark.console.status import PipelineStatus, TableStatus
from floodmark.core.change_table import format_bytes
from floodmark.sync.advance import AdvanceResult
from floodmark.sync.replay import ReplayCount

if TYPE_CHECKING:
    from floodmark.spark.verify import TableVerification

_STYLES = {"fine": "", "attention": "yellow", "incident": "red"}


def status_table(status: PipelineStatus) -> Table:
    """One row per table; what wants attention, and why, below."""
    table = Table(
        title=_title(status), title_justify="left", caption=_caption(status), caption_justify="left",
        caption_style="",
    )  # fmt: skip
    for name in ("source -> target", "state", "verdict", "watermark", "at (source's clock)", "lag"):
        table.add_column(name, overflow="fold")
    table.add_column("transactions behind", justify="right")
    table.add_column("last window: rows read", justify="right")
    for name in ("inserted", "updated", "deleted"):
        table.add_column(name, justify="right")
    for name in ("headroom", "drift"):
        table.add_column(name, overflow="fold")
    # Wide as the table is, only where there is something to be shown.
    are_sized = any(each.change_tables for each in status.tables)
    if are_sized:
        table.add_column("change table", justify="right", overflow="fold")
    for each in status.tables:
        cells = [*_cells(each), _change_tables(each)] if are_sized else _cells(each)
        table.add_row(*cells, style=_STYLES[each.standing])
    return table


def _title(status: PipelineStatus) -> str:
    if status.unfinished_window_id is None:
        return f"pipeline {status.pipeline}"
    return (
        f"pipeline {status.pipeline}: window {status.unfinished_window_id} is unfinished ({status.unfinished_state}); "
        "the next run finishes it"
    )


def _caption(status: PipelineStatus) -> str | None:
    lines = [
        f"{table.source}: {table.reason}. {table.cause} {table.hint}".rstrip()
        for table in status.tables
        if table.reason
    ]
    lines += [f"{table.source}: drift: {words}" for table in status.tables for words in table.drift]
    lines += [
        f"alert since {alert.raised_at:%Y-%m-%d %H:%M} UTC: {alert.kind.replace('_', ' ')}: {alert.what}"
        for alert in status.alerts
    ]
    return escape("\n".join(lines)) or None


def _cells(table: TableStatus) -> list[str]:
    last = table.last_window
    rows = (last.read_rows, last.inserted_rows, last.updated_rows, last.deleted_rows) if last else ()
    return [
        f"{table.source} -> {table.target}",
        _state(table),
        table.verdict,
        table.watermark or "-",
        f"{table.watermark_at:%Y-%m-%d %H:%M:%S}" if table.watermark_at else "-",
        _duration(table.lag_seconds),
        "-" if table.transactions_behind is None else f"{table.transactions_behind:,}",
        *([f"{number:,}" for number in rows] or ["-"] * 4),
        _duration(table.headroom_seconds),
        f"{len(table.drift)} open" if table.drift else "-",
    ]


def _state(table: TableStatus) -> str:
    if table.load_percent is None:
        return table.state
    kind = table.state if table.state == "first_load" else f"{table.state}, loading"
    return f"{kind} {table.load_percent} %, {table.load_rows:,} rows"


def _change_tables(table: TableStatus) -> str:
    """Named where there are two, as during a switch."""
    lines = []
    for each in table.change_tables:
        if len(table.change_tables) > 1:
            lines.append(f"{each.instance}:")
        lines.append("-" if each.rows is None else f"{each.rows:,} rows")
        lines += [] if each.size_bytes is None else [format_bytes(each.size_bytes)]
    return "\n".join(lines) or "-"


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else str(timedelta(seconds=round(seconds)))


def status_json(statuses: Sequence[PipelineStatus]) -> str:
    return json.dumps([asdict(status) for status in statuses], default=_as_text, indent=2)


def verification_table(results: Sequence[TableVerification]) -> Table:
    """One row per table."""
    table = Table(title="source and warehouse, row by row", title_justify="left")
    for name in ("source", "target"):
        table.add_column(name)
    for name in ("rows in source", "live rows in target", "differing keys"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in results:
        numbers = (each.source_rows, each.target_rows, each.different_keys)
        verdict = "equal" if each.equal else "[red]DIFFERENT[/red]"
        table.add_row(str(each.source), str(each.target), *(f"{number:,}" for number in numbers), verdict)
    return table


def verification_json(results: Sequence[TableVerification]) -> str:
    return json.dumps(
        [
            asdict(each) | {"source": str(each.source), "target": str(each.target), "equal": each.equal}
            for each in results
        ],
        indent=2,
    )


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def replay_table(counts: Sequence[ReplayCount]) -> Table:
    """What a replay would read, per table."""
    table = Table(title="a replay would read", title_justify="left")
    table.add_column("table", no_wrap=True)
    table.add_column("interval", overflow="fold")
    table.add_column("change rows", justify="right")
    for each in counts:
        table.add_row(str(each.table), str(each.interval), f"{each.rows:,}")
    return table


def run_table(result: AdvanceResult) -> Table:
    """What a window did, per table."""
    table = Table(title=f"window {result.window_id} of {result.pipeline}, up to {result.to_lsn}", title_justify="left")
    for name in ("table", "kind"):
        table.add_column(name, no_wrap=True)
    for name in ("read", "inserted", "updated", "deleted", "unchanged", "quarantined"):
        table.add_column(name, justify="right")
    for each in result.tables:
        rows = each.counts
        numbers = (rows.read_rows, rows.inserted_rows, rows.updated_rows, rows.deleted_rows, rows.unchanged_rows,
                   rows.quarantined_rows)  # fmt: skip
        table.add_row(str(each.target), each.kind.value.replace("_", " "), *(f"{number:,}" for number in numbers))
    return table
