"""The tables that commands print: made of whole words, and only of the columns that fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from floodmark.app.status import (
    behind_text,
    change_tables_text,
    duration_text,
    headroom_text,
    remarks,
    state_text,
    title,
)
from floodmark.core.plan import AdvanceResult
from floodmark.core.status import PipelineStatus, TableStatus
from floodmark.sync.replay import ReplayCount

if TYPE_CHECKING:
    from floodmark.core.status import TableVerification
    from floodmark.sync.alerts import OpenAlert


# --------------------------------------------------------------------------------------------------------------------
# Tables of the command line: no word and no name is ever broken, and what does not fit is left out by whole columns.
#
# On a terminal, columns are left out until a row fits, the least important first, and a line below says which.
# Elsewhere (a pipe, a file) every column is there, and each row is one line however long.


_GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A column. Of two, the one with the smaller ``keep`` is left out first."""

    heading: str
    keep: int
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class GridRow:
    """The cells of a row, one line each, and the style of all."""

    cells: Sequence[str]
    style: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table with a title."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[GridRow] = field(default_factory=tuple)

    def print(self, console: Console, *, wide: bool = False) -> None:
        """Print the table. ``wide``: with all columns, also where lines become longer than the terminal."""
        kept = list(range(len(self.columns)))
        if console.is_terminal and not wide:
            kept = self._fitting(console.width)
        if self.title:
            print_line(console, self.title, "bold")
        self._print_row(console, [column.heading for column in self.columns], kept, "bold")
        if console.is_terminal:
            console.print(Text("─" * self._width(kept), style="dim"), soft_wrap=True)
        for row in self.rows:
            self._print_row(console, row.cells, kept, row.style)
        left_out = [column.heading for place, column in enumerate(self.columns) if place not in kept]
        if left_out:
            print_line(console, f"Not shown: {', '.join(left_out)}. --wide and --json show all.", "dim")

    def _print_row(self, console: Console, cells: Sequence[str], kept: Sequence[int], style: str) -> None:
        padded = []
        for place in kept:
            blanks = " " * (self._cell_width(place) - cell_len(cells[place]))
            padded.append(blanks + cells[place] if self.columns[place].is_number else cells[place] + blanks)
        console.print(Text((" " * _GAP).join(padded).rstrip(), style=style), soft_wrap=True)

    def _fitting(self, width: int) -> list[int]:
        kept = list(range(len(self.columns)))
        while len(kept) > 1 and self._width(kept) > width:
            kept.remove(min(kept, key=lambda place: self.columns[place].keep))
        return kept

    def _width(self, kept: Sequence[int]) -> int:
        return sum(map(self._cell_width, kept)) + _GAP * (len(kept) - 1)

    def _cell_width(self, place: int) -> int:
        return max(map(cell_len, (self.columns[place].heading, *(row.cells[place] for row in self.rows))))


def print_line(console: Console, text: str, style: str = "", indent: str = "") -> None:
    """Print a text: wrapped between words on a terminal, as one line elsewhere. A longer word stays whole."""
    if not console.is_terminal:
        console.print(Text(indent + text), soft_wrap=True)
        return
    for line in wrap_words(text, console.width - len(indent)):
        console.print(Text(indent + line, style=style), soft_wrap=True)


def wrap_words(text: str, width: int) -> list[str]:
    """Return the lines of a text, none longer than a width unless it is one word. A line that fits stays as it is."""
    lines: list[str] = []
    for paragraph in text.splitlines():
        if cell_len(paragraph) <= width:
            lines.append(paragraph)
            continue
        line = ""
        for word in paragraph.split(" "):
            if line and cell_len(f"{line} {word}") > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return lines


# --------------------------------------------------------------------------------------------------------------------
# The tables of ``run``, ``replay`` and ``verify``, and data of commands as JSON.


def print_verification(console: Console, results: Sequence[TableVerification], *, wide: bool) -> None:
    """Print one row per verified table, the recorded differing keys, and a possible cause."""
    columns = (
        Column("source", 6),
        Column("", 5),
        Column("rows in source", 3, is_number=True),
        Column("live rows in target", 2, is_number=True),
        Column("differing keys", 4, is_number=True),
        Column("target", 1),
    )
    rows = []
    for each in results:
        numbers = (f"{number:,}" for number in (each.source_rows, each.target_rows, each.different_keys))
        cells = (str(each.source), "equal" if each.equal else "DIFFERENT", *numbers, str(each.target))
        rows.append(GridRow(cells, "" if each.equal else "red"))
    Grid("source and warehouse, row by row", columns, rows).print(console, wide=wide)
    for line in verification_remarks(results):
        print_line(console, line)


def verification_remarks(results: Sequence[TableVerification]) -> list[str]:
    """Return the recorded differing keys, and a possible cause."""
    lines = []
    for each in results:
        lines += [f"{each.source}: {difference}" for difference in each.differences]
        more = each.different_keys - len(each.differences)
        lines += [f"{each.source}: and {more:,} more keys"] if each.differences and more else []
    if not all(each.equal for each in results):
        lines.append(
            "Rows that the source wrote after the watermarks differ as well. For a definite result, stop all writers, "
            "run the pipeline (with change data capture, when the capture job has caught up), and verify again."
        )
    return lines


def verification_json(results: Sequence[TableVerification]) -> str:
    """Return the results of a comparison as JSON."""
    return json.dumps(
        [
            asdict(each) | {"source": str(each.source), "target": str(each.target), "equal": each.equal}
            for each in results
        ],
        indent=2,
    )


def print_replay(console: Console, counts: Sequence[ReplayCount]) -> None:
    """Print the change rows that a replay would read, per table."""
    columns = (Column("table", 3), Column("change rows", 2, is_number=True), Column("interval", 1))
    rows = [GridRow((str(each.table), f"{each.rows:,}", str(each.interval))) for each in counts]
    Grid("a replay would read", columns, rows).print(console)


def print_run(console: Console, result: AdvanceResult) -> None:
    """Print the row counts of a window, per table."""
    columns = (
        Column("table", 9),
        Column("read", 8, is_number=True),
        Column("inserted", 7, is_number=True),
        Column("updated", 6, is_number=True),
        Column("deleted", 5, is_number=True),
        Column("unchanged", 2, is_number=True),
        Column("quarantined", 4, is_number=True),
        Column("kind", 3),
    )
    rows = []
    for each in result.tables:
        counts = each.counts
        numbers = (
            counts.read_rows,
            counts.inserted_rows,
            counts.updated_rows,
            counts.deleted_rows,
            counts.unchanged_rows,
            counts.quarantined_rows,
        )
        kind = each.kind.value.replace("_", " ")
        rows.append(GridRow((str(each.target), *(f"{number:,}" for number in numbers), kind)))
    Grid(f"window {result.window_id} of {result.pipeline}, up to {result.to_lsn}", columns, rows).print(console)


# --------------------------------------------------------------------------------------------------------------------
# The status of a pipeline on a terminal: a line for each table, and remarks on what needs attention below.


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


# --------------------------------------------------------------------------------------------------------------------
# Open alerts as text and as JSON.


_INDENT = "  "


def print_alerts(console: Console, alerts: Sequence[OpenAlert]) -> None:
    """Print a paragraph for each alert."""
    if not alerts:
        print_line(console, "There is no open alert.")
    for each in alerts:
        alert = each.alert
        table = f", {alert.table}" if alert.table else ""
        heading = f"{alert.kind}: {alert.subject}{table}, since {each.raised_at:%Y-%m-%d %H:%M:%S %Z}"
        print_line(console, heading, "bold red")
        for text in (alert.what, alert.means, f"What to do: {alert.do}"):
            print_line(console, text, indent=_INDENT)


def alerts_json(alerts: Sequence[OpenAlert]) -> str:
    """Return the alerts as JSON."""
    return json.dumps([_document(each) for each in alerts], indent=2)


def _document(each: OpenAlert) -> dict[str, Any]:
    alert = each.alert
    return {
        "kind": alert.kind,
        "subject": alert.subject,
        "table": str(alert.table) if alert.table else None,
        "what": alert.what,
        "means": alert.means,
        "do": alert.do,
        "raised_at": each.raised_at.isoformat(),
        "seen_at": each.seen_at.isoformat(),
        "times": each.times,
    }
