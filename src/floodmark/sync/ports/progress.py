"""``Progress``: the receiver of reports about reads that take long. The steps do not know whether it draws or logs."""

from __future__ import annotations

import logging
from typing import Protocol

from floodmark.core.schema import TableName
from floodmark.core.status.read_progress import ReadProgress, StepProgress

LOG_SECONDS = 10.0
_LOG = logging.getLogger(__name__)
_EARLY = 0.99
"""The share of the time between two lines after which a report counts as due: a timer may fire a little early."""


class Progress(Protocol):
    """A receiver of reports. It is called from several threads, and never fails the work that is reported."""

    @property
    def every_seconds(self) -> float:
        """Return the time after which a further report is wanted, where a report costs a query."""

    def report(self, read: ReadProgress) -> None:
        """Take the progress of the read of a table. It may be called more often than ``every_seconds``."""

    def report_step(self, step: StepProgress) -> None:
        """Take the beginning or the progress of a step."""


class LoggedProgress:
    """``Progress`` as lines of the log, one for each table every few seconds, where it has changed.

    A finished read has no line: the step that read it logs its result.
    """

    def __init__(self, every_seconds: float = LOG_SECONDS) -> None:
        self._every_seconds = every_seconds
        self._logged: dict[TableName, ReadProgress] = {}
        self._is_silent = True
        """Whether no table had a line since the last report about the step."""

    @property
    def every_seconds(self) -> float:
        return self._every_seconds

    def report(self, read: ReadProgress) -> None:
        last = self._logged.get(read.table)
        known = (last.rows, last.staged_chunks) if last else (read.earlier_rows, read.staged_chunks)
        has_news = (read.rows, read.staged_chunks) != known
        since = read.seconds - (last.seconds if last and last.seconds <= read.seconds else 0.0)
        if read.is_done or not has_news or since < _EARLY * self._every_seconds:
            return
        self._logged[read.table], self._is_silent = read, False
        _LOG.info("%s", read)

    def report_step(self, step: StepProgress) -> None:
        """Log the step where nothing else shows that it goes on. Its beginning has lines of its own."""
        if step.seconds and self._is_silent:
            _LOG.info("%s.", str(step)[:1].upper() + str(step)[1:])
        self._is_silent = True
