"""The tables of the command line, and the same data as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from floodmark.core.status.report import PipelineStatus
from floodmark.core.window.published import AdvanceResult
from floodmark.sync.recovery.replay import ReplayCount

if TYPE_CHECKING:
    from floodmark.core.status.verification import TableVerification


def status_json(statuses: Sequence[PipelineStatus]) -> str:
    """Return the status of the pipelines as JSON."""
    return json.dumps([asdict(status) for status in statuses], default=_as_text, indent=2)


def verification_table(results: Sequence[TableVerification]) -> Table:
    """Return a table with one row per verified table."""
    table = Table(
        title="source and warehouse, row by row",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("source -> target", overflow="fold")
    for name in ("rows in\nsource", "live rows\nin target", "differing\nkeys"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for each in results:
        numbers = (each.source_rows, each.target_rows, each.different_keys)
        verdict = "equal" if each.equal else "[red]DIFFERENT[/red]"
        names = escape(f"{each.source} -> {each.target}")
        table.add_row(names, *(f"{number:,}" for number in numbers), verdict)
    return table


def verification_remarks(results: Sequence[TableVerification]) -> list[str]:
    """Return the recorded differing keys, and a possible cause."""
    lines = []
    for each in results:
        lines += [f"{each.source}: {difference}" for difference in each.differences]
        more = each.different_keys - len(each.differences)
        lines += [f"{each.source}: and {more:,} more keys"] if each.differences and more else []
    if not all(each.equal for each in results):
        lines.append(
            "Rows that the source wrote after the watermarks differ as well. For a definite result, stop all writers, "
            "run the pipeline (with change data capture, when the capture job has caught up), and verify again."
        )
    return lines


def verification_json(results: Sequence[TableVerification]) -> str:
    """Return the results of a comparison as JSON."""
    return json.dumps(
        [
            asdict(each) | {"source": str(each.source), "target": str(each.target), "equal": each.equal}
            for each in results
        ],
        indent=2,
    )


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def replay_table(counts: Sequence[ReplayCount]) -> Table:
    """Return a table of the change rows that a replay would read, per table."""
    table = Table(title="a replay would read", title_justify="left")
    table.add_column("table", no_wrap=True)
    table.add_column("interval", overflow="fold")
    table.add_column("change rows", justify="right")
    for each in counts:
        table.add_row(str(each.table), str(each.interval), f"{each.rows:,}")
    return table


def run_table(result: AdvanceResult) -> Table:
    """Return a table of a window's row counts, per table."""
    table = Table(
        title=f"window {result.window_id} of {result.pipeline}, up to {result.to_lsn}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("table", overflow="fold")
    for name in ("read", "inserted", "updated", "deleted", "unchanged", "quarantined"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in result.tables:
        rows = each.counts
        numbers = (
            rows.read_rows,
            rows.inserted_rows,
            rows.updated_rows,
            rows.deleted_rows,
            rows.unchanged_rows,
            rows.quarantined_rows,
        )
        kind = each.kind.value.replace("_", " ")
        table.add_row(f"{each.target}\n{kind}", *(f"{number:,}" for number in numbers))
    return table
