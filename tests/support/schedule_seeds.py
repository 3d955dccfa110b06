"""The seeds of random schedules, and the command that repeats one.

FLOODMARK_SCHEDULE_SEEDS=500 draws that many; FLOODMARK_SCHEDULE_SEED is the first of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

FIRST = int(os.environ.get("FLOODMARK_SCHEDULE_SEED", "0"))
_CHOSEN = os.environ.get("FLOODMARK_SCHEDULE_SEEDS")


def schedule_seeds(usual: int) -> range:
    """Return the seeds to draw. usual: how many where the environment does not say."""
    return range(FIRST, FIRST + (int(_CHOSEN) if _CHOSEN else usual))


@contextmanager
def repeatable(test: str, seed: int, journal: Sequence[str]) -> Iterator[None]:
    """Add to an error what happened before, and the command that repeats it. test: the id of the test function."""
    try:
        yield
    except BaseException as error:
        error.add_note("\n".join(["The schedule:", *(f"{number:4} {line}" for number, line in enumerate(journal, 1))]))
        command = f".venv/bin/python -m pytest '{test}'"
        error.add_note(f"again: FLOODMARK_SCHEDULE_SEED={seed} FLOODMARK_SCHEDULE_SEEDS=1 {command}")
        raise
