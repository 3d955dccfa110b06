"""The terminal tables of the CLI, and the same facts as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.table import Table

from floodmark.console.status import PipelineStatus, TableStatus
from floodmark.sync.advance import AdvanceResult

if TYPE_CHECKING:
    from floodmark.spark.verify import TableVerification

_NUMBERS = ("windows", "read_rows", "inserted_rows", "updated_rows", "deleted_rows", "quarantined_rows")


def status_table(status: PipelineStatus) -> Table:
    """One row per table."""
    table = Table(title=_title(status), title_justify="left", caption_justify="left")
    for name in ("source", "target", "watermark", "at (source's clock)", "lag"):
        table.add_column(name, overflow="fold")
    for name in _NUMBERS:
        table.add_column(name.removesuffix("_rows"), justify="right")
    table.add_column("verdict", overflow="fold")
    for each in status.tables:
        table.add_row(*_cells(each))
    return table


def _title(status: PipelineStatus) -> str:
    if status.unfinished_window_id is None:
        return f"pipeline {status.pipeline}"
    return (
        f"pipeline {status.pipeline}: window {status.unfinished_window_id} is unfinished ({status.unfinished_state}); "
        "the next run finishes it"
    )


def _cells(table: TableStatus) -> list[str]:
    return [
        table.source,
        table.target,
        table.watermark or "-",
        f"{table.watermark_at:%Y-%m-%d %H:%M:%S}" if table.watermark_at else "-",
        "-" if table.lag_seconds is None else str(timedelta(seconds=round(table.lag_seconds))),
        *(f"{getattr(table, name):,}" for name in _NUMBERS),
        table.verdict,
    ]


def status_json(statuses: Sequence[PipelineStatus]) -> str:
    return json.dumps([asdict(status) for status in statuses], default=_as_text, indent=2)


def verification_table(results: Sequence[TableVerification]) -> Table:
    """One row per table."""
    table = Table(title="source and warehouse, row by row", title_justify="left")
    for name in ("source", "target"):
        table.add_column(name)
    for name in ("rows in source", "live rows in target", "differing keys"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in results:
        numbers = (each.source_rows, each.target_rows, each.different_keys)
        verdict = "equal" if each.equal else "[red]DIFFERENT[/red]"
        table.add_row(str(each.source), str(each.target), *(f"{number:,}" for number in numbers), verdict)
    return table


def verification_json(results: Sequence[TableVerification]) -> str:
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
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def run_table(result: AdvanceResult) -> Table:
    """What a window did, per table."""
    table = Table(title=f"window {result.window_id} of {result.pipeline}, up to {result.to_lsn}", title_justify="left")
    for name in ("table", "kind"):
        table.add_column(name, no_wrap=True)
    for name in ("read", "inserted", "updated", "deleted", "unchanged", "quarantined"):
        table.add_column(name, justify="right")
    for each in result.tables:
        rows = each.counts
        numbers = (rows.read_rows, rows.inserted_rows, rows.updated_rows, rows.deleted_rows, rows.unchanged_rows,
                   rows.quarantined_rows)  # fmt: skip
        table.add_row(str(each.target), each.kind.value.replace("_", " "), *(f"{number:,}" for number in numbers))
    return table
