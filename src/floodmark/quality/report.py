"""The front page of the data docs: which windows were checked, what was found, and the page of each check.

One file without scripts, fonts or styles from elsewhere, so that it can be read on a closed network. The pages it
links to are Great Expectations' own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import groupby
from urllib.parse import quote

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid #8884; vertical-align: top; }
th { font-weight: 600; } td.number { text-align: right; } ul { margin: 0; padding-left: 1.1rem; }
.passed { color: #1a7f37; } .warned { color: #9a6700; } .failed { color: #cf222e; font-weight: 600; }
small { opacity: .75; }
"""


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """One suite over one batch. A sentence per broken check, critical ones in ``failures``. page: a relative path."""

    pipeline: str
    window_id: int
    checked_at: datetime
    name: str
    checks: int
    failures: tuple[str, ...]
    warnings: tuple[str, ...]
    page: str

    @property
    def verdict(self) -> str:
        return "failed" if self.failures else "warned" if self.warnings else "passed"


def render_index(batches: Iterable[CheckedBatch]) -> str:
    """The page, newest window first."""
    ordered = sorted(batches, key=lambda b: b.name)
    ordered.sort(key=_when, reverse=True)
    sections = "".join(_section(list(group)) for _, group in groupby(ordered, key=_when))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Floodmark: data quality</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
        "<h1>Floodmark: data quality</h1><p>Each window is checked after it is merged and before its watermark moves. "
        "A failed check leaves the watermark where it was.</p>"
        f"{sections or '<p>No window has been checked yet.</p>'}</body></html>\n"
    )


def _when(batch: CheckedBatch) -> tuple[datetime, str, int]:
    return batch.checked_at, batch.pipeline, batch.window_id


def _section(batches: Sequence[CheckedBatch]) -> str:
    first = batches[0]
    rows = "".join(_row(batch) for batch in batches)
    return (
        f"<h2>Pipeline {escape(first.pipeline)}, window {first.window_id} "
        f"<small>{first.checked_at:%Y-%m-%d %H:%M:%S} UTC</small></h2>"
        "<table><thead><tr><th>Rows</th><th>Checks</th><th>Result</th><th>Found</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _row(batch: CheckedBatch) -> str:
    found = "".join(f"<li>{escape(text)}</li>" for text in (*batch.failures, *batch.warnings))
    return (
        f'<tr><td><a href="{quote(batch.page)}">{escape(batch.name)}</a></td><td class="number">{batch.checks}</td>'
        f'<td class="{batch.verdict}">{batch.verdict}</td><td>{f"<ul>{found}</ul>" if found else ""}</td></tr>'
    )
