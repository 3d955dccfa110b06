"""The load of a window of many small tables, and that of one table with as many changes.

``python -m benchmarks.many_tables --tables 100 --changes 1000`` tries it alone, and prints the log of each load.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measuring import Report, create_database, temporary_stack
from floodmark_laptop.stack import Stack

LIMIT, SECONDS_LIMIT = 2.0, 10.0
_SHAPES = ((100, 1_000), (1, 100_000), (500, 20))
"""Tables, and the changes of each."""
_COLUMNS = (
    "ID int NOT NULL PRIMARY KEY, Name nvarchar(40) NOT NULL, Amount money NOT NULL, ChangedAt datetime2(3) NOT NULL"
)


@dataclass(frozen=True)
class Loaded:
    """A window's load."""

    tables: int
    changes: int
    """The changes of each table."""
    load_seconds: float
    """The time without the start of Java."""
    log: str


def measure(stack: Stack, report: Report, folder: Path) -> None:
    report.add("## Many tables in one window")
    loads = [load_window(stack, folder, *shape) for shape in _SHAPES]
    many, one, small = loads
    rows: list[tuple[object, ...]] = [
        (f"{each.tables} × {each.changes:,}", f"{each.load_seconds:.1f}") for each in (many, one)
    ]
    rows.append((f"{small.tables} × {small.changes} (at most {SECONDS_LIMIT:g})", f"{small.load_seconds:.1f}"))
    rows.append(
        (f"**{many.tables} tables / one** (at most {LIMIT})", f"**{many.load_seconds / one.load_seconds:.1f}**")
    )
    report.table(("tables × changes", "whole load, seconds"), rows)


def load_window(stack: Stack, folder: Path, tables: int, changes: int) -> Loaded:
    """Make a database, load it, change every row once, and load the window."""
    config, names = prepare(stack, folder, tables, changes)
    _run(stack, config)  # the first load
    change_all(stack, config.stem, names)
    log = _run(stack, config)
    taken = re.search(r"The load took ([\d.]+) s", log)
    if taken is None or log.count(f" {changes} staged.") != tables:
        raise RuntimeError(f"the load did not stage every change:\n{log[-4000:]}")
    return Loaded(tables, changes, float(taken[1]), log)


def prepare(stack: Stack, folder: Path, tables: int, rows: int) -> tuple[Path, list[str]]:
    """Make a database with tables of so many rows, all captured. Return its configuration and the tables' names."""
    database = f"Many{tables}"
    names = [f"T{number:03d}" for number in range(tables)]
    with stack.connect_source("master") as connection:
        create_database(connection, database)
    with stack.connect_source(database) as connection:
        cursor = connection.cursor()
        cursor.execute("EXEC sys.sp_cdc_enable_db")
        for name in names:
            cursor.execute(f"CREATE TABLE dbo.{name} ({_COLUMNS})")
            cursor.execute(f"EXEC sys.sp_cdc_enable_table N'dbo', N'{name}', @role_name = NULL")
            _fill(cursor, name, rows)
        cursor.execute("EXEC emulator.run_capture")
    stack.use_source_database(database)
    return _configure(stack, folder, database, names), names


def change_all(stack: Stack, database: str, names: list[str]) -> None:
    """Update every row once, in one transaction for each table, and wait until the changes are captured."""
    with stack.connect_source(database) as connection:
        cursor = connection.cursor()
        for name in names:
            cursor.execute(f"UPDATE dbo.{name} SET Amount = Amount + 1")
        cursor.execute("EXEC emulator.run_capture")


def _fill(cursor: Any, name: str, rows: int) -> None:
    step = min(rows, 1_000)
    values = ", ".join(f"({i}, N'näme {i}', {i}, '2026-03-01T12:00:00')" for i in range(step))
    cursor.execute(f"INSERT INTO dbo.{name} VALUES {values}")
    have = step
    while have < rows:
        take = min(have, rows - have)
        cursor.execute(
            f"INSERT INTO dbo.{name} SELECT ID + {have}, Name, Amount, ChangedAt FROM dbo.{name} WHERE ID < {take}"
        )
        have += take


def _configure(stack: Stack, folder: Path, database: str, names: list[str]) -> Path:
    pipeline = database.lower()
    config = folder / f"{pipeline}.yaml"
    tables = [{"source": f"dbo.{name}", "target": f"{pipeline}.{name.lower()}"} for name in names]
    document = {
        "sources": {pipeline: {"conn_id": stack.connection_id}},
        "warehouse": {"conn_id": "warehouse"},
        "pipelines": {pipeline: {"source": pipeline, "schedule": "0 0 1 1 *", "tables": tables}},
    }
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    return config


def _run(stack: Stack, config: Path) -> str:
    command = [str(Path(sys.executable).parent / "floodmark"), "run", config.stem, "--config", str(config)]
    done = subprocess.run(command, env=stack.airflow.environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"floodmark run ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--changes", type=int, default=1_000)
    options = parser.parse_args()
    with temporary_stack() as (stack, folder):
        for shape in ((options.tables, options.changes), (1, options.tables * options.changes)):
            found = load_window(stack, folder, *shape)
            print(found.log)
            print(f"{found.tables} x {found.changes}: {found.load_seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
