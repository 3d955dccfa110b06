"""The findings of ``floodmark doctor`` as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from floodmark.core.doctor.finding import Finding, Grade

_STYLES = {Grade.GOOD: "", Grade.NOTE: "", Grade.RISK: "yellow", Grade.PROBLEM: "red"}


def findings_table(pipeline: str, findings: Sequence[Finding]) -> Table:
    """The worst first."""
    table = Table(title=f"pipeline {pipeline}: its source", title_justify="left")
    for name in ("", "check", "where", "finding", "mend it with"):
        table.add_column(name, overflow="fold")
    for each in sorted(findings, key=lambda finding: -finding.grade):
        cells = (each.grade.name.lower(), each.check, each.subject, each.text, each.fix)
        table.add_row(*map(escape, cells), style=_STYLES[each.grade])
    return table


def findings_json(findings: Sequence[Finding]) -> str:
    return json.dumps([asdict(each) | {"grade": each.grade.name.lower()} for each in findings], indent=2)
