"""The table at the end of ``make run``: the row counts of the windows, and whether source and warehouse are equal.

It runs the ``floodmark`` command, as a user would, with the connections of the stack's Airflow.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from floodmark_laptop.processes import LaptopError
from floodmark_laptop.stack import Stack

_VERIFY_EXIT_CODES = (0, 1)
"""0: all tables are equal. 1: a table differs, and the JSON has the details."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of one table."""

    table: str
    equal: bool
    rows: int
    differences: list[Any]
    """The first differing keys, as ``floodmark verify`` prints them."""
    status: dict[str, Any]


Run = Callable[[Stack, tuple[str, ...]], tuple[int, str, str]]
"""Run ``floodmark`` with the arguments. Return the exit status, and what it writes to stdout and to stderr."""


def _run_command(stack: Stack, arguments: tuple[str, ...]) -> tuple[int, str, str]:
    command = [str(Path(sys.executable).parent / "floodmark"), *arguments]
    done = subprocess.run(command, env=stack.airflow.environment(), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def compare(stack: Stack, pipeline: str = "shop", *, run: Run = _run_command) -> list[Comparison]:
    """Compare all tables row by row, in the order of the configuration."""
    status = _ask(run, stack, "status", pipeline, "--live", "--json")[0]["tables"]
    verified = {each["source"]: each for each in _ask(run, stack, "verify", pipeline, "--json")}
    return [
        Comparison(
            table=each["source"],
            equal=verified[each["source"]]["equal"],
            rows=verified[each["source"]]["source_rows"],
            differences=verified[each["source"]]["differences"],
            status=each,
        )
        for each in status
    ]


def print_comparison(stack: Stack, console: Console, pipeline: str = "shop") -> bool:
    """Print the table. Return whether every table is equal."""
    stack.say("comparing source and warehouse row by row")
    comparisons = compare(stack, pipeline)
    table = Table(
        title=f"pipeline {pipeline}: source and warehouse, row by row", title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("table", no_wrap=True)
    for name in ("rows read", "inserted", "updated", "deleted", "windows"):
        table.add_column(name, justify="right")
    for name in ("watermark", "lag", "compared"):
        table.add_column(name, no_wrap=True)
    for each in comparisons:
        rows = (each.status[f"{kind}_rows"] for kind in ("read", "inserted", "updated", "deleted"))
        lag = each.status["lag_seconds"]
        table.add_row(
            Text(each.table),
            *(f"{number:,}" for number in rows),
            str(each.status["windows"]),
            each.status["watermark"] or "-",
            "-" if lag is None else str(timedelta(seconds=round(lag))),
            f"equal, {each.rows:,} rows" if each.equal else "[red]DIFFERENT[/red]",
        )
    console.print(table)
    for each in comparisons:
        for difference in each.differences:
            console.print(f"{each.table}: {difference}", markup=False)
    console.print(f"data docs: {stack.data_docs_dir}   logs: {stack.logs_dir}", markup=False)
    return all(each.equal for each in comparisons)


def _ask(run: Run, stack: Stack, *arguments: str) -> Any:
    returncode, stdout, stderr = run(stack, arguments)
    if returncode not in _VERIFY_EXIT_CODES or not stdout.strip():
        raise LaptopError(f"floodmark {' '.join(arguments)} failed: {stderr.strip()}")
    return json.loads(stdout)
