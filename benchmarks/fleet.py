"""The loads of a fleet of devices: each a file of its own, with few changes.

``python -m benchmarks fleet`` measures it alone.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import yaml

from benchmarks.measuring import Report
from compact_tracking import ChangeTracking
from floodmark_laptop.stack import Stack

DEVICES = 2_000
ROWS = 100
CHANGES = 50
WINDOW_LIMIT, IDLE_LIMIT = 15.0, 3.0
_TABLE = "CREATE TABLE orders (id INTEGER PRIMARY KEY NOT NULL, amount DECIMAL(9,2), note TEXT)"
_PIPELINE = "fleet"


def measure(stack: Stack, report: Report, folder: Path) -> None:
    files = folder / "devices"
    paths = create_devices(files, DEVICES)
    config = _configure(folder)
    environment = stack.airflow.environment() | {
        "AIRFLOW_CONN_FLEET": json.dumps({"conn_type": "fs", "extra": {"path": str(files)}})
    }
    first = _run(environment, config)
    for number, path in enumerate(paths):
        change(path, number)
    window = _run(environment, config)
    idle = _run_idle(environment, config)
    report.add(f"## A fleet of {DEVICES:,} devices, one SQLite file each")
    rows: list[tuple[object, ...]] = [
        (f"first window: {ROWS} rows a device", f"{DEVICES * ROWS:,}", f"{first:.1f}", f"{first / DEVICES * 1e3:.0f}"),
        (
            f"{CHANGES} changes a device (at most {WINDOW_LIMIT:g})",
            f"{DEVICES * CHANGES:,}",
            f"{window:.1f}",
            f"{window / DEVICES * 1e3:.0f}",
        ),
        (
            f"no device has a change: the whole command (at most {IDLE_LIMIT:g})",
            "0",
            f"{idle:.1f}",
            f"{idle / DEVICES * 1e3:.1f}",
        ),
    ]
    report.table(("window", "rows", "load, seconds", "milliseconds a device"), rows)


def create_devices(folder: Path, devices: int) -> list[Path]:
    """Create tracked files with as many rows each. Return them. They are clones, as new devices are."""
    folder.mkdir()
    paths = [folder / f"van-{number:04d}.db" for number in range(devices)]
    with closing(sqlite3.connect(paths[0], isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(_TABLE)
        ChangeTracking(connection).enable_tracking("orders")
        rows = ", ".join(f"({number}, {number}, 'first')" for number in range(ROWS))
        connection.execute(f"INSERT INTO orders (id, amount, note) VALUES {rows}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for path in paths[1:]:
        shutil.copy(paths[0], path)
    return paths


def change(path: Path, number: int) -> None:
    """Update and delete rows of a device, each in a statement of its own."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE orders SET amount = {number} WHERE id < {CHANGES - 10}")
        connection.execute(f"DELETE FROM orders WHERE id >= {ROWS - 10}")


def _configure(folder: Path) -> Path:
    config = folder / "fleet.yaml"
    tables = [{"source": "main.orders", "target": "fleet.orders"}]
    document = {
        "sources": {_PIPELINE: {"conn_id": "fleet", "kind": "compact"}},
        "warehouse": {"conn_id": "warehouse"},
        "pipelines": {_PIPELINE: {"source": _PIPELINE, "schedule": "0 0 1 1 *", "tables": tables}},
    }
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    return config


def _run(environment: dict[str, str], config: Path) -> float:
    """Run the pipeline once. Return the seconds of the load, without the start of Java."""
    return float(_run_command(environment, config, r"The load took ([\d.]+) s")[1])


def _run_idle(environment: dict[str, str], config: Path) -> float:
    """Run the pipeline, which has nothing to read. Return the seconds of the command."""
    start = time.perf_counter()
    _run_command(environment, config, "Nothing to read")
    return time.perf_counter() - start


def _run_command(environment: dict[str, str], config: Path, words: str) -> re.Match[str]:
    """Run the pipeline once. Return where its log has the words. Raises RuntimeError where it has not."""
    command = [str(Path(sys.executable).parent / "floodmark"), "run", _PIPELINE, "--config", str(config)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    log = done.stdout + done.stderr
    found = re.search(words, log)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"floodmark run ended with {done.returncode}:\n{log[-4000:]}")
    return found
