"""The status of a pipeline as a table, for the terminal and for the page in Airflow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from floodmark.core.status.report import PipelineStatus, TableStatus
from floodmark.core.upkeep.change_table import format_bytes
from floodmark.core.upkeep.retention import ENDLESS_SECONDS

_STYLES = {"fine": "", "attention": "yellow", "incident": "red"}


def status_table(status: PipelineStatus) -> Group:
    """Return one row per table, in few columns of several lines each, and remarks on what needs attention below."""
    table = Table(box=box.SIMPLE_HEAD, show_lines=True, pad_edge=False, collapse_padding=True)
    table.add_column("source\n-> target", overflow="fold")
    table.add_column("state\nverdict", overflow="fold")
    table.add_column("watermark\nat (source's clock)", no_wrap=True)
    table.add_column("lag\nbehind\nheadroom", no_wrap=True)
    table.add_column("last window\nread\n+ins ~upd -del")
    # The column is added only where there is something to show.
    are_sized = any(each.change_tables for each in status.tables)
    if are_sized:
        table.add_column("change\ntable", overflow="fold")
    for each in status.tables:
        cells = [*_cells(each), _change_tables(each)] if are_sized else _cells(each)
        table.add_row(*cells, style=_STYLES[each.standing])
    return Group(Text(_title(status), style="bold"), table, *map(Text, _remarks(status)))


def _title(status: PipelineStatus) -> str:
    if status.unfinished_window_id is None:
        return f"pipeline {status.pipeline}"
    return (
        f"pipeline {status.pipeline}: window {status.unfinished_window_id} is unfinished ({status.unfinished_state}); "
        "the current or the next run finishes it"
    )


def _remarks(status: PipelineStatus) -> list[str]:
    """Return the remarks. One that applies to several tables is made once."""
    concerned: dict[str, list[str]] = {}
    for table in status.tables:
        if table.reason:
            concerned.setdefault(f"{table.reason}: {table.cause} {table.hint}".rstrip(), []).append(table.source)
    lines = [str(status.planned_stop)] if status.planned_stop else []
    lines += [f"{_names(tables, status)}: {remark}" for remark, tables in concerned.items()]
    lines += [f"{table.source}: {table.switch}" for table in status.tables if table.switch]
    lines += [f"{table.source}: drift: {drift}" for table in status.tables for drift in table.drift]
    lines += [
        f"alert since {alert.raised_at:%Y-%m-%d %H:%M} UTC: {alert.kind.replace('_', ' ')}: {alert.what}"
        for alert in status.alerts
    ]
    return lines


def _names(tables: Sequence[str], status: PipelineStatus) -> str:
    are_all = len(tables) == len(status.tables) > 1
    return f"all {len(tables)} tables" if are_all else ", ".join(tables)


def _cells(table: TableStatus) -> list[str]:
    at = f"{table.watermark_at:%Y-%m-%d %H:%M:%S}" if table.watermark_at else "-"
    behind = "-" if table.transactions_behind is None else f"{table.transactions_behind:,} tx"
    return [
        escape(f"{table.source}\n-> {table.target}"),
        "\n".join((_state(table), table.verdict, *([f"{len(table.drift)} drift open"] if table.drift else []))),
        f"{table.watermark or '-'}\n{at}",
        f"{_duration(table.lag_seconds)}\n{behind}\n{_headroom(table)}",
        _last_window(table),
    ]


def _last_window(table: TableStatus) -> str:
    last = table.last_window
    if last is None:
        return "-"
    lines = [f"{last.read_rows:,}", f"+{last.inserted_rows:,} ~{last.updated_rows:,} -{last.deleted_rows:,}"]
    return "\n".join(lines + ([f"{last.quarantined_rows:,} in quarantine"] if last.quarantined_rows else []))


def _state(table: TableStatus) -> str:
    if table.load_percent is None:
        return table.state
    kind = table.state if table.state == "first_load" else f"{table.state}, loading"
    return f"{kind} {table.load_percent} %, {table.load_rows:,} rows"


def _change_tables(table: TableStatus) -> str:
    """Return the sizes of a table's change tables, with names where there are two, as during a switch."""
    lines = []
    for each in table.change_tables:
        if len(table.change_tables) > 1:
            lines.append(f"{each.instance}:")
        lines.append("-" if each.rows is None else f"{each.rows:,} rows")
        lines += [] if each.size_bytes is None else [format_bytes(each.size_bytes)]
    return "\n".join(lines) or "-"


def _headroom(table: TableStatus) -> str:
    """Return the headroom as a time; where that is unknown, as a number of transactions."""
    if table.headroom_seconds is None and table.headroom_transactions is not None:
        return f"{table.headroom_transactions:,} tx"
    return _duration(table.headroom_seconds)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds > ENDLESS_SECONDS:
        return "no end"
    whole = timedelta(seconds=round(seconds))
    rest = whole - timedelta(days=whole.days)
    return f"{whole.days}d {rest}" if whole.days else str(rest)
