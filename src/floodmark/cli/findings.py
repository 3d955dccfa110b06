"""The findings of ``floodmark doctor`` as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from floodmark.core.doctor.finding import Finding, Grade

_STYLES = {Grade.GOOD: "", Grade.NOTE: "", Grade.RISK: "yellow", Grade.PROBLEM: "red"}


def findings_table(pipeline: str, findings: Sequence[Finding]) -> Table:
    """Return a table of the findings, the worst first."""
    table = Table(title=f"pipeline {pipeline}: its source", title_justify="left")
    for name in ("", "check", "where", "finding", "fix"):
        table.add_column(name, overflow="fold")
    for each in sorted(findings, key=lambda finding: -finding.grade):
        cells = (each.grade.name.lower(), each.check, each.subject, each.text, each.fix)
        table.add_row(*map(escape, cells), style=_STYLES[each.grade])
    return table


def findings_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON."""
    return json.dumps([_document(each) for each in findings], indent=2)


def _document(finding: Finding) -> dict[str, str]:
    return {
        "grade": finding.grade.name.lower(),
        "check": finding.check,
        "subject": finding.subject,
        "text": finding.text,
        "mend": finding.fix,
    }
