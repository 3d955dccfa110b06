"""Commands with progress on a real pseudo-terminal, and the same commands in a pipe. Everything but Spark is real."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import floodmark_without_spark
from fleet_rig import FleetRig, fleet_settings
from floodmark.core.progress import PROGRESS_PREFIX
from floodmark.postgres.session import WarehouseConnection
from pseudo_terminal import run_on_terminal

CONFIG = """
sources: {vans: {conn_id: vans, kind: compact}}
warehouse: {conn_id: warehouse}
pipelines:
  edge:
    source: vans
    tables:
      - {source: main.orders, target: edge.orders}
"""
PROGRAM = [sys.executable, str(Path(floodmark_without_spark.__file__))]
SECRET = "s3cret-value"


@pytest.fixture
def rig(tmp_path: Path, database: WarehouseConnection) -> FleetRig:
    folder = tmp_path / "devices"
    folder.mkdir()
    made = FleetRig(folder, database, fleet_settings())
    made.make("van-1", f"INSERT INTO orders (id, amount, note) VALUES (1, 1.5, '{SECRET}'), (2, 2.5, NULL)")
    made.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    return made


@pytest.fixture
def environment(rig: FleetRig, tmp_path: Path, database: WarehouseConnection) -> Mapping[str, str]:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    warehouse = {"conn_type": "postgres", "host": database.host, "port": database.port, "schema": database.database}
    hidden = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    return {name: value for name, value in os.environ.items() if name not in hidden} | {
        "TERM": "xterm-256color",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "FLOODMARK_CONFIG": str(path),
        "FLOODMARK_DATA_DOCS": str(tmp_path / "docs"),
        "AIRFLOW_CONN_WAREHOUSE": json.dumps(warehouse | {"login": database.user, "password": "s3cret-s3cret"}),
        "AIRFLOW_CONN_VANS": json.dumps({"conn_type": "fs", "extra": {"path": str(rig.folder)}}),
    }


def on_terminal(environment: Mapping[str, str], *arguments: str, columns: int = 80) -> tuple[int, str, str]:
    """Return the exit status of a command, what it has written without colours, and what follows its last bars."""
    code, text = run_on_terminal([*PROGRAM, *arguments], environment, columns=columns)
    text = re.sub(r"\x1b\[[\d;]*m", "", text).replace("\r\n", "\n")
    bars, _, result = text.rpartition("\x1b[?25h\r")
    # The last bars are erased, and then the cursor is shown.
    assert bars.rindex("\x1b[2K") > max(bars.rindex("main.orders"), bars.rindex("\x1b[?25l"))
    return code, text, result


def test_commands_draw_bars_and_leave_log_and_result(environment: Mapping[str, str]) -> None:
    code, text, result = on_terminal(environment, "run", "edge")
    assert code == 0, text
    assert "window 1: starting the load" in text
    assert "window 1: reading" in text
    assert re.search(r"main\.orders .*100%.*3 rows", text)
    assert "window 1: merging" in text
    assert "main.orders: 3 rows read, 3 staged.\n" in text
    assert "━" not in result
    assert re.search(r"^edge\.orders +3 +3 +0 +0", result, re.MULTILINE)
    assert PROGRESS_PREFIX not in text

    code, text, result = on_terminal(environment, "verify", "edge", columns=60)
    assert code == 0, text
    assert re.search(r"main\.orders .*100%", text)
    assert "comparing" in text
    assert result.startswith("source and warehouse, row by row\n")
    assert SECRET not in text


def test_error_leaves_no_bar_and_its_message_breaks_no_word(environment: Mapping[str, str]) -> None:
    code, text, result = on_terminal(environment, "verify", "edge", columns=60)
    assert code == 1, text
    assert "reading" in text
    message = (
        "floodmark: main.orders: its target edge.orders does not exist, so there is nothing to compare. The first "
        "window with the table creates it: run the pipeline, then verify again."
    )
    assert " ".join(result.split()) == message


def test_pipe_gets_plain_lines_also_where_colours_are_forced(environment: Mapping[str, str]) -> None:
    forced = {**environment, "FORCE_COLOR": "1"}
    done = subprocess.run([*PROGRAM, "run", "edge"], env=forced, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "main.orders: 3 rows read, 3 staged." in done.stderr.splitlines()
    assert "\x1b" not in done.stderr
    assert "━" not in done.stderr
    assert PROGRESS_PREFIX not in done.stderr + done.stdout
