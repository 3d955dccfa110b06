"""``PrintedProgress``: the progress of a load as lines on standard output, for the process that started the job."""

from __future__ import annotations

import sys
import threading

from floodmark.core.status.progress_line import format_progress_line
from floodmark.core.status.read_progress import ReadProgress, StepProgress


class PrintedProgress:
    """``sync.ports.progress.Progress`` for a starter that draws it."""

    every_seconds = 1.0

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def report(self, read: ReadProgress) -> None:
        self._print(read)

    def report_step(self, step: StepProgress) -> None:
        self._print(step)

    def _print(self, progress: ReadProgress | StepProgress) -> None:
        with self._lock:
            # In one piece: the lines of the log go to the same pipe.
            sys.stdout.write(format_progress_line(progress) + "\n")
            sys.stdout.flush()
