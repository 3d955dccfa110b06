"""The lines of progress bars: as many for each as the width of the terminal needs. No word and no number is broken.

Wide terminals have one line for a table. On narrower ones the rows, the rate and the time left have a line of their
own, and a name that leaves no room for the bar has one, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from floodmark.core.status.pace import describe_seconds
from floodmark.core.status.read_progress import ReadKind, ReadProgress

_GAP = 2
_LEAST_BAR = 10
_WIDEST_BAR = 40
_PERCENT = 5
"""The cells of ``100 %``."""
_STAGED = (ReadKind.CHANGES, ReadKind.REPLAY)


@dataclass(frozen=True, slots=True)
class BarLayout:
    """The division of the lines, the same for all tables."""

    width: int
    """Of the terminal, as far as it is used."""
    lines: int
    """The lines of each table, 1 to 3."""
    name_width: int
    bar_width: int


def plan_layout(reads: Sequence[ReadProgress], width: int) -> BarLayout:
    """Return the layout with the fewest lines in which the bars are wide enough."""
    name_width = max((cell_len(str(read.table)) for read in reads), default=0)
    numbers_width = max((cell_len(next(_numbers(read))) for read in reads), default=0)
    bar_width = width - name_width - _PERCENT - 2 * _GAP
    if bar_width - numbers_width - _GAP >= _LEAST_BAR:
        return BarLayout(width, 1, name_width, min(bar_width - numbers_width - _GAP, _WIDEST_BAR))
    if bar_width >= _LEAST_BAR:
        return BarLayout(width, 2, name_width, bar_width)
    return BarLayout(width, 3, 0, width - _PERCENT - 2 * _GAP)


def bar_lines(read: ReadProgress, layout: BarLayout, now: float) -> Sequence[RenderableType]:
    """Return the lines of a table. now: for a bar without an end."""
    share = "" if read.percent is None else f"{read.percent} %"
    total, completed = (None, 0) if read.percent is None else (100, read.percent)
    bar = ProgressBar(total=total, completed=completed, width=layout.bar_width, animation_time=now)
    if layout.lines == 1:
        return [_row(str(read.table), layout.name_width, bar, share, next(_numbers(read)))]
    numbers = Text(" " * _GAP + _fitting(read, layout.width - _GAP))
    if layout.lines == 2:
        return [_row(str(read.table), layout.name_width, bar, share), numbers]
    name = Text(str(read.table))
    name.truncate(layout.width, overflow="ellipsis")
    return [name, _row("", 0, bar, share), numbers]


def _row(name: str, name_width: int, bar: ProgressBar, share: str, numbers: str = "") -> Table:
    row = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    row.add_column(width=name_width, no_wrap=True)
    row.add_column(width=bar.width, no_wrap=True)
    row.add_column(width=_PERCENT, no_wrap=True, justify="right")
    cells: list[RenderableType] = [name, bar, share]
    if numbers:
        row.add_column(no_wrap=True)
        cells.append(numbers)
    row.add_row(*cells)
    return row


def _fitting(read: ReadProgress, width: int) -> str:
    """Return the most that fits, at least the rows."""
    every = list(_numbers(read))
    return next((text for text in every if cell_len(text) <= width), every[-1])


def _numbers(read: ReadProgress) -> Iterator[str]:
    """Yield rows, rate and time in words, each with less than the one before."""
    noun = "row" if read.rows == 1 else "rows"
    rows = f"{read.rows:,} {noun}{' staged' if read.kind in _STAGED and not read.is_done else ''}"
    rate = read.pace.rows_per_second
    speed = f", {rate:,.0f} rows/s" if rate is not None else ""
    if read.is_done:
        time = f" in {describe_seconds(read.seconds)}"
    elif read.seconds_left is not None:
        time = f", ~{describe_seconds(read.seconds_left)} left"
    else:
        time = ""
    if read.total_rows and not read.is_done and read.total_rows > read.rows:
        yield f"{read.rows:,} of ~{read.total_rows:,} rows{speed}{time}"
    yield f"{rows}{speed}{time}"
    yield f"{rows}{time or speed}"
    yield rows
