"""One finding of ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Grade(IntEnum):
    """The greater, the worse."""

    GOOD = 0
    NOTE = 1
    """To know of; or what cannot be seen."""
    RISK = 2
    """Works now, and will fail or lose something one day."""
    PROBLEM = 3
    """The pipeline cannot run, or not correctly."""


@dataclass(frozen=True, slots=True)
class Finding:
    """check: which question. subject: table, or database. mend: T-SQL or a step; "" where nothing is to be done."""

    grade: Grade
    check: str
    subject: str
    text: str
    fix: str = ""
