"""The status of a pipeline on a terminal: a line for each table, and remarks on what needs attention below."""

from __future__ import annotations

from rich.console import Console

from floodmark.app.status_texts import (
    behind_text,
    change_tables_text,
    duration_text,
    headroom_text,
    remarks,
    state_text,
    title,
)
from floodmark.cli.grid import Column, Grid, GridRow, print_line
from floodmark.core.status.report import PipelineStatus, TableStatus

_STYLES = {"fine": "", "attention": "yellow", "incident": "red"}
_COLUMNS = (
    Column("table", 12),
    Column("verdict", 11),
    Column("state", 6),
    Column("lag", 10, is_number=True),
    Column("headroom", 7, is_number=True),
    Column("behind", 2, is_number=True),
    Column("read", 8, is_number=True),
    Column("+ins ~upd -del", 9),
    Column("watermark at", 5),
    Column("target", 3),
    Column("watermark", 1),
)
_QUARANTINED = Column("quarantined", 11, is_number=True)
_CHANGE_TABLE = Column("change table", 0)


def print_status(console: Console, status: PipelineStatus, *, wide: bool) -> None:
    """Print a pipeline. ``wide``: with all columns."""
    columns, rows = list(_COLUMNS), [_cells(each) for each in status.tables]
    # Columns that are added only where there is something to show.
    if any(each.last_window and each.last_window.quarantined_rows for each in status.tables):
        columns.append(_QUARANTINED)
        for row, each in zip(rows, status.tables, strict=True):
            row.append(f"{each.last_window.quarantined_rows:,}" if each.last_window else "-")
    if any(each.change_tables for each in status.tables):
        columns.append(_CHANGE_TABLE)
        for row, each in zip(rows, status.tables, strict=True):
            row.append(change_tables_text(each).replace("\n", " "))
    styled = [GridRow(row, _STYLES[each.standing]) for row, each in zip(rows, status.tables, strict=True)]
    Grid(title(status), columns, styled).print(console, wide=wide)
    for remark in remarks(status):
        print_line(console, remark)


def _cells(table: TableStatus) -> list[str]:
    last = table.last_window
    drift = f", {len(table.drift)} drift open" if table.drift else ""
    return [
        table.source,
        table.verdict + drift,
        state_text(table),
        duration_text(table.lag_seconds),
        headroom_text(table),
        behind_text(table),
        f"{last.read_rows:,}" if last else "-",
        f"+{last.inserted_rows:,} ~{last.updated_rows:,} -{last.deleted_rows:,}" if last else "-",
        f"{table.watermark_at:%Y-%m-%d %H:%M:%S}" if table.watermark_at else "-",
        table.target,
        table.watermark or "-",
    ]
