"""The findings of ``floodmark doctor`` as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console

from floodmark.cli.grid import print_line
from floodmark.core.doctor.finding import Finding, Grade

_STYLES = {Grade.GOOD: "green", Grade.NOTE: "bold", Grade.RISK: "bold yellow", Grade.PROBLEM: "bold red"}
_INDENT = "  "


def print_findings(console: Console, pipeline: str, findings: Sequence[Finding], *, everything: bool) -> None:
    """Print the findings, the worst first, each with its fix; the good ones only as a number, unless ``everything``."""
    print_line(console, f"pipeline {pipeline}: its source", "bold")
    bad = sorted((each for each in findings if each.grade is not Grade.GOOD), key=lambda finding: -finding.grade)
    for each in bad:
        print_line(console, f"{each.grade.name}: {each.check}: {each.subject}", _STYLES[each.grade])
        print_line(console, each.text, indent=_INDENT)
        if each.fix:
            print_line(console, f"fix: {each.fix}", indent=_INDENT)
    good = [each for each in findings if each.grade is Grade.GOOD]
    if everything:
        for each in good:
            print_line(console, f"good: {each.check}: {each.subject}: {each.text}", _STYLES[Grade.GOOD])
    elif good:
        noun = "check is" if len(good) == 1 else "checks are"
        print_line(console, f"{len(good)} {noun} good. --all lists them.", _STYLES[Grade.GOOD])


def findings_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON."""
    return json.dumps([_document(each) for each in findings], indent=2)


def _document(finding: Finding) -> dict[str, str]:
    return {
        "grade": finding.grade.name.lower(),
        "check": finding.check,
        "subject": finding.subject,
        "text": finding.text,
        "fix": finding.fix,
    }
