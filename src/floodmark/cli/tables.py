"""The tables of ``run``, ``replay`` and ``verify``, and data of commands as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console

from floodmark.cli.grid import Column, Grid, GridRow, print_line
from floodmark.core.window.published import AdvanceResult
from floodmark.sync.recovery.replay import ReplayCount

if TYPE_CHECKING:
    from floodmark.core.status.verification import TableVerification


def print_verification(console: Console, results: Sequence[TableVerification], *, wide: bool) -> None:
    """Print one row per verified table, the recorded differing keys, and a possible cause."""
    columns = (
        Column("source", 6),
        Column("", 5),
        Column("rows in source", 3, is_number=True),
        Column("live rows in target", 2, is_number=True),
        Column("differing keys", 4, is_number=True),
        Column("target", 1),
    )
    rows = []
    for each in results:
        numbers = (f"{number:,}" for number in (each.source_rows, each.target_rows, each.different_keys))
        cells = (str(each.source), "equal" if each.equal else "DIFFERENT", *numbers, str(each.target))
        rows.append(GridRow(cells, "" if each.equal else "red"))
    Grid("source and warehouse, row by row", columns, rows).print(console, wide=wide)
    for line in verification_remarks(results):
        print_line(console, line)


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


def print_replay(console: Console, counts: Sequence[ReplayCount]) -> None:
    """Print the change rows that a replay would read, per table."""
    columns = (Column("table", 3), Column("change rows", 2, is_number=True), Column("interval", 1))
    rows = [GridRow((str(each.table), f"{each.rows:,}", str(each.interval))) for each in counts]
    Grid("a replay would read", columns, rows).print(console)


def print_run(console: Console, result: AdvanceResult) -> None:
    """Print the row counts of a window, per table."""
    columns = (
        Column("table", 9),
        Column("read", 8, is_number=True),
        Column("inserted", 7, is_number=True),
        Column("updated", 6, is_number=True),
        Column("deleted", 5, is_number=True),
        Column("unchanged", 2, is_number=True),
        Column("quarantined", 4, is_number=True),
        Column("kind", 3),
    )
    rows = []
    for each in result.tables:
        counts = each.counts
        numbers = (
            counts.read_rows,
            counts.inserted_rows,
            counts.updated_rows,
            counts.deleted_rows,
            counts.unchanged_rows,
            counts.quarantined_rows,
        )
        kind = each.kind.value.replace("_", " ")
        rows.append(GridRow((str(each.target), *(f"{number:,}" for number in numbers), kind)))
    Grid(f"window {result.window_id} of {result.pipeline}, up to {result.to_lsn}", columns, rows).print(console)
