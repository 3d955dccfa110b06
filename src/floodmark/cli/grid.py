"""Tables of the command line: no word and no name is ever broken, and what does not fit is left out by whole columns.

On a terminal, columns are left out until a row fits, the least important first, and a line below says which. Elsewhere
(a pipe, a file) every column is there, and each row is one line however long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

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
