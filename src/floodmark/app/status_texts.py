"""The parts of a status in words, for the terminal and for the page in Airflow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from floodmark.core.status.report import PipelineStatus, TableStatus
from floodmark.core.upkeep.change_table import format_bytes
from floodmark.core.upkeep.retention import ENDLESS_SECONDS


def title(status: PipelineStatus) -> str:
    """Return the name of a pipeline, and its unfinished window."""
    if status.unfinished_window_id is None:
        return f"pipeline {status.pipeline}"
    return (
        f"pipeline {status.pipeline}: window {status.unfinished_window_id} is unfinished ({status.unfinished_state}); "
        "the current or the next run finishes it"
    )


def remarks(status: PipelineStatus) -> list[str]:
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


def state_text(table: TableStatus) -> str:
    """Return the state of a table, with the progress of a load."""
    if table.load_percent is None:
        return table.state
    kind = table.state if table.state == "first_load" else f"{table.state}, loading"
    return f"{kind} {table.load_percent} %, {table.load_rows:,} rows"


def change_tables_text(table: TableStatus) -> str:
    """Return the sizes of a table's change tables, with names where there are two, as during a switch."""
    lines = []
    for each in table.change_tables:
        if len(table.change_tables) > 1:
            lines.append(f"{each.instance}:")
        lines.append("-" if each.rows is None else f"{each.rows:,} rows")
        lines += [] if each.size_bytes is None else [format_bytes(each.size_bytes)]
    return "\n".join(lines) or "-"


def changed_text(inserted: int, updated: int, deleted: int) -> str:
    """Return how many rows a window changed, for a page."""
    return f"+{inserted:,} ~{updated:,} \N{MINUS SIGN}{deleted:,}"


def behind_text(table: TableStatus) -> str:
    """Return the transactions or messages of the source that were not read."""
    if table.unread_messages is not None:
        return f"{table.unread_messages:,} msg"
    return "-" if table.transactions_behind is None else f"{table.transactions_behind:,} tx"


def headroom_text(table: TableStatus) -> str:
    """Return the headroom as a time; where that is unknown, as a number of transactions."""
    if table.headroom_seconds is None and table.headroom_transactions is not None:
        return f"{table.headroom_transactions:,} tx"
    return duration_text(table.headroom_seconds)


def duration_text(seconds: float | None) -> str:
    """Return a time in days and hours, "-" where it is unknown."""
    if seconds is None:
        return "-"
    if seconds > ENDLESS_SECONDS:
        return "no end"
    whole = timedelta(seconds=round(seconds))
    rest = whole - timedelta(days=whole.days)
    return f"{whole.days}d {rest}" if whole.days else str(rest)
