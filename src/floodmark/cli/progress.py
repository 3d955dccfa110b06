"""The progress of a command: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from floodmark.cli.process import err
from floodmark.core.progress import ReadProgress, StepProgress
from floodmark.core.schema import TableName

_LEAST_WIDTH_FOR_BARS = 80


class DrawnProgress(Progress):
    """``sync.ports.Progress`` on a terminal, for use in a ``with`` block: the step, and each table that is read.

    They are on standard error, as the log is, and go when the work ends, however it ends: what stays is the log, and
    the result or the message of the error.
    """

    every_seconds = 1.0

    def __init__(self, console: Console) -> None:
        columns: list[ProgressColumn] = [_text("{task.description}")]
        if console.width >= _LEAST_WIDTH_FOR_BARS:
            columns.append(BarColumn(console.width // 5))
        columns += [TaskProgressColumn(), TimeElapsedColumn(), _text("{task.fields[numbers]}")]
        self._room = console.height
        # Standard output may be a file.
        super().__init__(*columns, console=console, transient=True, redirect_stdout=False, refresh_per_second=4)
        self._step = self.add_task("", total=None, visible=False, numbers="")
        self._reads: dict[TableName, TaskID] = {}
        # Not rich's own lock: to hold it while rich draws is a deadlock with the thread that refreshes.
        self._reporting = threading.Lock()

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the rows for which the terminal may have room: the step, then the tables, the finished ones last."""
        yield self.make_tasks_table(sorted(self.tasks, key=lambda task: task.finished)[: self._room])

    def stop(self) -> None:
        """Remove all rows, also those that the terminal has no room for. Repeatable."""
        for task in self.task_ids:
            self.update(task, visible=False)
        super().stop()

    def report(self, read: ReadProgress) -> None:
        of = f" of ~{read.total_rows:,}" if read.rows_left else ""
        numbers = f"{read.rows:,}{of} rows{read.pace.describe(read.rows_left)}"
        total = None if read.percent is None else 100
        with self._reporting:
            if read.table not in self._reads:
                self._reads[read.table] = self.add_task(str(read.table), total=None, numbers=numbers)
            task = self._reads[read.table]
            self._tasks[task].start_time = self.get_time() - read.seconds
            self.update(task, total=total, completed=read.percent, numbers=numbers)

    def report_step(self, step: StepProgress) -> None:
        with self._reporting:
            if self._tasks[self._step].description != step.what:
                self.reset(self._step, description=step.what, visible=True)
            done = f"{step.done_tables} of {step.tables} tables done" if step.tables else ""
            self.update(self._step, numbers=done)


def _text(template: str) -> TextColumn:
    """Return a column whose texts are wrapped where the terminal is narrow. Brackets in names are no markup."""
    return TextColumn(template, markup=False, table_column=Column(overflow="fold"))


@contextmanager
def drawn_progress(console: Console = err) -> Iterator[DrawnProgress | None]:
    """Draw the progress on standard error while the block runs; None where it is no terminal that can be drawn on.

    What the block writes to standard error or logs is printed above the bars.
    """
    # A variable that forces colours makes no pipe a terminal.
    if not console.file.isatty() or not console.is_interactive or console.is_dumb_terminal:
        yield None
        return
    with DrawnProgress(console) as progress, _ended_by_signal(progress.stop):
        try:
            yield progress
        finally:
            # The last line may have no end.
            sys.stderr.flush()


@contextmanager
def _ended_by_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Remove the bars, which hide the cursor, before SIGTERM does what it always does."""

    def end(number: int, _frame: FrameType | None) -> None:
        stop()
        signal.signal(number, before)
        signal.raise_signal(number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
