"""The meaning of a load job's output and exit status: its result, or the error that explains why there is none.

A job that ends without a result either never began or was stopped on its way. The first is a fault of Java, Spark or
their options, which another try would meet again. The second passes, and the next try does the same window.
"""

from __future__ import annotations

import os
import re
import signal
from collections import deque
from collections.abc import Iterable, Iterator

from floodmark.core.errors import FloodmarkBugError, FloodmarkError, LoadKilledError, LoadStartError
from floodmark.core.status.progress_line import parse_progress_line
from floodmark.core.status.read_progress import ReadProgress
from floodmark.core.window.load_result import STARTED, LoadResult, parse_load_result
from floodmark.spark.launch.temporary_files import explain_ending, find_complaint, find_trouble, temporary_folders
from floodmark.sync.ports.progress import Progress

_KEPT_LINES = 8
_LONGEST_LINE = 300
_NOISE = re.compile(r"\s*$|\s+at |\s*\.{3} \d+ more|(?:NOTE: )?Picked up ")
"""Empty lines, frames of Java's stack traces, and Java's note that it has options."""
_REPEATED_OPTIONS = re.compile(r"(Picked up \w*JAVA\w*):.*")
"""Java repeats what such a variable holds, which may be a password."""
_NO_MEMORY = re.compile(
    r"insufficient memory|Could not reserve enough space|Cannot allocate memory|unable to create (?:new )?native thread"
)
_MEMORY_HINT = "Free memory where the load runs, or lower the memory of Spark's driver."
_START_HINT = (
    "Correct the Spark connection or, where the load is started (Airflow's workers, or the command), Java or Spark: "
    "JAVA_HOME, SPARK_HOME and SPARK_SUBMIT_OPTS. Then start the run again. Nothing was read or written."
)


class JobOutput:
    """The job's lines on their way to a log. Keeps what matters at the end: result, complaints, and the last lines.

    progress: receives what the job reports about it; None where it was not asked to report it in lines for programs.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self.result: LoadResult | None = None
        self._progress = progress
        self._started = False
        self._complaint: str | None = None
        self._out_of_memory = False
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield all lines but those that are for programs: that the job began, its progress, and its result.

        Hides Java's options.
        """
        for line in lines:
            text = line.strip()
            found = parse_load_result(text)
            if found is not None:
                self.result = found
            elif text == STARTED:
                self._started = True
                self._last.clear()
            elif self._progress is not None and (progress := parse_progress_line(text)) is not None:
                if isinstance(progress, ReadProgress):
                    self._progress.report(progress)
                else:
                    self._progress.report_step(progress)
            else:
                shown = _REPEATED_OPTIONS.sub(r"\1.", line)
                self._keep(shown)
                yield shown

    def require_result(self, window_id: int, exit_code: int) -> LoadResult:
        """Return the job's result.

        Raises the error that the job reported. Raises LoadKilledError (retried) or LoadStartError (not retried) where
        it reported nothing. exit_code: as ``subprocess`` gives it, negative for a signal.
        """
        if self.result is None:
            raise self._explain_silence(f"window {window_id}", exit_code)
        error = self.result.error
        if isinstance(error, FloodmarkBugError):
            # It may come from Spark, which does not say that a disk was full.
            hint = " ".join(filter(None, (error.hint, *self._explain_files())))
            raise type(error)(error.subject, error.message, hint, error.detail)
        if error is not None:
            raise error
        return self.result

    def _keep(self, line: str) -> None:
        self._complaint = self._complaint or find_complaint(line)
        self._out_of_memory = self._out_of_memory or bool(_NO_MEMORY.search(line))
        if not _NOISE.match(line):
            self._last.append(line.strip()[:_LONGEST_LINE])

    def _explain_silence(self, subject: str, exit_code: int) -> FloodmarkError:
        why, do = self._explain_files()
        ended = _describe_exit(exit_code)
        last = f"Its last lines: {' | '.join(self._last)}." if self._last else ""
        if self._started or why or self._out_of_memory or _signal_of(exit_code):
            if self._out_of_memory:
                do = f"{do} {_MEMORY_HINT}".lstrip()
            # Lines of a job that has read rows may hold their values.
            return LoadKilledError(
                subject,
                f"the load ended without a result ({ended}). {why}".rstrip(),
                f"{do} Nothing is half-written; the next try does the same window.".lstrip(),
                " ".join(filter(None, (self._complaint, last))),
            )
        return LoadStartError(
            subject, f"Spark did not start the load ({ended}). {last or 'It printed nothing.'}", _START_HINT
        )

    def _explain_files(self) -> tuple[str, str]:
        return explain_ending(self._complaint, find_trouble(temporary_folders(os.environ)))


def start_failure(window_id: int, problem: Exception) -> LoadStartError:
    """Return the error of a load whose spark-submit could not even be run."""
    why = f"{problem.filename}: {problem.strerror}" if isinstance(problem, OSError) else str(problem)
    return LoadStartError(f"window {window_id}", f"spark-submit cannot be run: {why}.", _START_HINT)


def _signal_of(exit_code: int) -> signal.Signals | None:
    """Return the signal that ended the process. Shells and Java report that of a child as 128 + its number."""
    try:
        return signal.Signals(-exit_code if exit_code < 0 else exit_code - 128)
    except ValueError:
        return None


def _describe_exit(exit_code: int) -> str:
    ended_by = _signal_of(exit_code)
    return f"ended by {ended_by.name}" if ended_by else f"exit status {exit_code}"
