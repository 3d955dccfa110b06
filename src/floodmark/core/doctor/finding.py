"""A finding of ``doctor``, and its grade."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Grade(IntEnum):
    """The severity of a finding: the greater, the worse."""

    GOOD = 0
    NOTE = 1
    """Something to know, or something that cannot be seen."""
    RISK = 2
    """It works now, and will fail or lose something one day."""
    PROBLEM = 3
    """The pipeline cannot run, or not correctly."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one check."""

    grade: Grade
    check: str
    """The name of the check."""
    subject: str
    """A table or the database."""
    text: str
    fix: str = ""
    """T-SQL or a step; "" where nothing has to be done."""


def worst(findings: tuple[Finding, ...]) -> Grade:
    """Return the worst grade, GOOD without findings."""
    return max((finding.grade for finding in findings), default=Grade.GOOD)
