"""The progress of a command: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import GetTimeCallable, Progress, TaskID
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from floodmark.cli.tables import wrap_words
from floodmark.core.progress import ReadKind, ReadProgress, StepProgress, describe_seconds
from floodmark.core.schema import TableName

# --------------------------------------------------------------------------------------------------------------------
# The lines of progress bars: as many for each as the width of the terminal needs. No word and no number is broken.
#
# Wide terminals have one line for a table. On narrower ones the rows, the rate and the time left have a line of their
# own, and a name that leaves no room for the bar has one, too.


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


# --------------------------------------------------------------------------------------------------------------------
# ``DrawnProgress``: the progress of a command as bars on a terminal, one for each table, with the log above them.
#
# The bars are on standard error, as the log is, and go when the command's work ends, however it ends: what stays is the
# log, and the result or the message of the error.


_OTHER_LINES = 3
"""The lines of a terminal without bars: that of the step, that of tables without a bar, and the cursor's."""


class _Bars(Progress):
    """The lines of all bars, in place of the table of columns that rich would draw."""

    def __init__(self, console: Console, get_time: GetTimeCallable | None = None, *, auto_refresh: bool = True) -> None:
        self.step = StepProgress("")
        self.now = get_time or console.get_time
        self.step_began = self.now()
        self.done: set[TableName] = set()
        self._spinner = Spinner("line")
        # Before rich has initialised itself, it asks for what there is to draw.
        self._terminal = console
        # What is printed meanwhile is handed to the console by ``LinesAbove``.
        super().__init__(
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            auto_refresh=auto_refresh,
            get_time=get_time,
            refresh_per_second=4,
        )

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the line of the step, and the bars for which the terminal has room: those of unfinished reads first."""
        width, now = self._terminal.width - 1, self.now()
        if self.step.what:
            yield self._step_line(width, now)
        reads: list[ReadProgress] = [task.fields["read"] for task in self.tasks]
        shown = self._with_room(reads, plan_layout(reads, width).lines)
        layout = plan_layout(shown, width)
        for read in shown:
            yield from bar_lines(read, layout, now)
        if more := len(reads) - len(shown):
            yield Text(f"  and {more:,} more {'table' if more == 1 else 'tables'}")

    def _step_line(self, width: int, now: float) -> Text:
        seconds = now - self.step_began
        shown = seconds if seconds >= 1 else 0.0
        step = StepProgress(self.step.what, shown, self.step.tables, self._done_tables())
        line = Text(f"{self._spinner.render(now)} {step}")
        line.truncate(width)
        return line

    def _done_tables(self) -> int:
        return max(self.step.done_tables, len(self.done)) if self.step.tables else 0

    def _with_room(self, reads: list[ReadProgress], lines: int) -> list[ReadProgress]:
        """Return the reads that have a bar. Of the finished ones, those are left out that came first."""
        room = max((self._terminal.height - _OTHER_LINES) // lines, 1)
        unfinished = [read for read in reads if not read.is_done][:room]
        finished = [read for read in reads if read.is_done]
        kept = {read.table for read in (*unfinished, *finished[len(unfinished) + len(finished) - room :])}
        return [read for read in reads if read.table in kept] if len(reads) > room else reads


class DrawnProgress:
    """``sync.ports.Progress`` on a terminal, for use in a ``with`` block."""

    every_seconds = 1.0

    def __init__(self, console: Console, get_time: GetTimeCallable | None = None, *, auto_refresh: bool = True) -> None:
        self._bars = _Bars(console, get_time, auto_refresh=auto_refresh)
        self._tasks: dict[TableName, TaskID] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> DrawnProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the bars. Repeatable."""
        self._bars.stop()

    def refresh(self) -> None:
        """Draw at once what is known; otherwise it is drawn several times a second."""
        self._bars.refresh()

    def report(self, read: ReadProgress) -> None:
        with self._lock:
            if read.table not in self._tasks:
                self._tasks[read.table] = self._bars.add_task(str(read.table), total=None, read=read)
            if read.is_done:
                self._bars.done.add(read.table)
            self._bars.update(self._tasks[read.table], completed=read.rows, total=read.total_rows, read=read)

    def report_step(self, step: StepProgress) -> None:
        with self._lock:
            if step.what != self._bars.step.what or not step.seconds:
                self._bars.step_began = self._bars.now() - step.seconds
            self._bars.step = step


class LinesAbove(io.TextIOBase):
    """Standard error while bars are drawn: each line is printed above them, wrapped between words."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = ""
        self._lock = threading.Lock()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            for line in lines:
                self._print(line)
        return len(text)

    def flush(self) -> None:
        """Do nothing: a line that is begun would be torn by the bars."""

    def finish(self) -> None:
        """Print the last line, which may have no end."""
        with self._lock:
            if self._begun:
                self._print(self._begun)
            self._begun = ""

    def _print(self, line: str) -> None:
        wrapped = "\n".join(wrap_words(line.rstrip("\r"), self._console.width))
        self._console.print(Text(wrapped), soft_wrap=True)


def can_draw(console: Console) -> bool:
    """Return whether lines can be drawn again on a console. A variable that forces colours makes no pipe a terminal."""
    return console.file.isatty() and console.is_interactive and not console.is_dumb_terminal


@contextmanager
def drawn_progress(console: Console | None = None) -> Iterator[DrawnProgress | None]:
    """Draw the progress on standard error while the block runs; None where it is no terminal that can be drawn on.

    What the block writes to standard error or logs is printed above the bars.
    """
    console = console or Console(file=sys.stderr, highlight=False)
    if not can_draw(console):
        yield None
        return
    lines = LinesAbove(console)
    with ExitStack() as stack:
        progress = stack.enter_context(DrawnProgress(console))
        stack.enter_context(_ended_by_signal(progress.stop))
        stack.callback(lines.finish)
        stack.enter_context(_written_to(lines))
        yield progress


@contextmanager
def _written_to(lines: LinesAbove) -> Iterator[None]:
    """Have standard error and the handlers of our log that write to it write to ``lines``."""
    stderr = sys.stderr
    handlers = [
        handler
        for handler in logging.getLogger("floodmark").handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is stderr
    ]
    sys.stderr = lines
    for handler in handlers:
        handler.setStream(lines)
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(stderr)
        sys.stderr = stderr


@contextmanager
def _ended_by_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Remove the bars, which hide the cursor, before SIGTERM ends the process as it always does."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        stop()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
