"""The status of a pipeline as a table, for the terminal and for the page in Airflow."""

from __future__ import annotations

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from floodmark.app.status_texts import change_tables_text, duration_text, headroom_text, remarks, state_text, title
from floodmark.core.status.report import PipelineStatus, TableStatus

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
        cells = [*_cells(each), change_tables_text(each)] if are_sized else _cells(each)
        table.add_row(*cells, style=_STYLES[each.standing])
    return Group(Text(title(status), style="bold"), table, *map(Text, remarks(status)))


def _cells(table: TableStatus) -> list[str]:
    at = f"{table.watermark_at:%Y-%m-%d %H:%M:%S}" if table.watermark_at else "-"
    behind = "-" if table.transactions_behind is None else f"{table.transactions_behind:,} tx"
    return [
        escape(f"{table.source}\n-> {table.target}"),
        "\n".join((state_text(table), table.verdict, *([f"{len(table.drift)} drift open"] if table.drift else []))),
        f"{table.watermark or '-'}\n{at}",
        f"{duration_text(table.lag_seconds)}\n{behind}\n{headroom_text(table)}",
        _last_window(table),
    ]


def _last_window(table: TableStatus) -> str:
    last = table.last_window
    if last is None:
        return "-"
    lines = [f"{last.read_rows:,}", f"+{last.inserted_rows:,} ~{last.updated_rows:,} -{last.deleted_rows:,}"]
    return "\n".join(lines + ([f"{last.quarantined_rows:,} in quarantine"] if last.quarantined_rows else []))
