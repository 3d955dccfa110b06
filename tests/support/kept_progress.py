"""``KeptProgress``: a ``Progress`` that keeps what it is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.core.progress import ReadProgress, StepProgress
from floodmark.sync.ports import Progress


@dataclass
class KeptProgress:
    """``sync.ports.Progress`` of a test."""

    every_seconds: float = 0.01
    reads: list[ReadProgress] = field(default_factory=list)
    steps: list[StepProgress] = field(default_factory=list)

    def report(self, read: ReadProgress) -> None:
        self.reads.append(read)

    def report_step(self, step: StepProgress) -> None:
        self.steps.append(step)


if TYPE_CHECKING:
    # The tests that pass it to a step are not read by mypy.
    _progress: Progress = KeptProgress()
