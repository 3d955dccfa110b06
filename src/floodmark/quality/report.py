"""The front page of the data docs: the checked windows, the findings, and a link to the page of each check.

It is one file without external scripts, fonts or styles, so that it can be read on a closed network, as are the pages
of windows without findings. The pages of the others are made by Great Expectations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from html import escape
from itertools import groupby
from typing import Any
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
    """The result of one suite over one batch."""

    pipeline: str
    window_id: int
    checked_at: datetime
    name: str
    checks: int
    failures: tuple[str, ...]
    """One sentence per failed critical check."""
    warnings: tuple[str, ...]
    """One sentence per other failed check."""
    page: str
    """The relative path of the page."""

    @property
    def verdict(self) -> str:
        """The result: passed, warned or failed."""
        return "failed" if self.failures else "warned" if self.warnings else "passed"


def render_index(batches: Iterable[CheckedBatch]) -> str:
    """Return the page, the newest window first."""
    ordered = sorted(batches, key=lambda b: b.name)
    ordered.sort(key=_when, reverse=True)
    sections = "".join(_section(list(group)) for _, group in groupby(ordered, key=_when))
    return (
        f"{_head('Floodmark: data quality')}"
        "<h1>Floodmark: data quality</h1><p>Each window is checked after it is merged and before its watermark moves. "
        "When a check of a table fails, its watermark does not move.</p>"
        f"{sections or '<p>No window has been checked yet.</p>'}</body></html>\n"
    )


def render_passed(
    pipeline: str, window_id: int, checked_at: datetime, descriptions: Mapping[str, Sequence[str]]
) -> str:
    """Return the page of a window that passed every check. descriptions: of the checks, by the name of their rows."""
    title = f"Pipeline {escape(pipeline)}, window {window_id}"
    sections = "".join(
        f"<h2>{escape(name)}</h2><ul>{''.join(f'<li>{escape(each)}</li>' for each in checks)}</ul>"
        for name, checks in descriptions.items()
    )
    return (
        f"{_head(title)}<h1>{title}</h1><p>Checked at {checked_at:%Y-%m-%d %H:%M:%S} UTC. "
        f'Every check <span class="passed">passed</span>.</p>{sections}</body></html>\n'
    )


def _head(title: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
    )


def to_json(batch: CheckedBatch) -> dict[str, object]:
    """Return the result for a file of JSON."""
    return asdict(batch) | {"checked_at": batch.checked_at.isoformat()}


def from_json(found: dict[str, Any]) -> CheckedBatch:
    """Return the result that ``to_json`` wrote."""
    lists = {name: tuple(found[name]) for name in ("failures", "warnings")}
    return CheckedBatch(**{**found, **lists, "checked_at": datetime.fromisoformat(found["checked_at"])})


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
