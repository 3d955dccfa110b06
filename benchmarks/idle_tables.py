"""A pipeline of many tables with nothing to do: what the source is asked, and how long ``open_window`` takes.

The log of a source moves although no table of the pipeline changes: other tables do, and SQL Server itself writes an
entry every few minutes. Then the watermarks move without a window; otherwise nothing is written.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks.asked import counted, prepare
from benchmarks.measuring import Report
from floodmark.app.pipeline import App, config_path
from floodmark.app.run import open_next
from floodmark.config.loading import load_config
from floodmark.core.schema import TableName
from floodmark_laptop.main_job import TASKS
from floodmark_laptop.stack import REPOSITORY, Stack

TABLES = 500
LIMIT_SECONDS = 3.0
_RUNS = 3
_DATABASE = "Idle"
_PIPELINE = "idle"
_DAG_ID = f"cdc_{_PIPELINE}"
_ENDED = frozenset({"success", "failed"})


def measure(stack: Stack, report: Report, folder: Path) -> None:
    """Measure the step alone, and as a task of Airflow, with a log that rests and with one that moves."""
    *names, other = prepare(stack, _DATABASE, TABLES + 1)
    _configure(stack, folder, names)
    _command(stack, str(Path(sys.executable).parent / "floodmark"), "run", _PIPELINE)  # the first load
    stack.start_airflow()
    stack.airflow.wait_for_dag(_DAG_ID)
    stack.airflow.unpause(_DAG_ID)
    report.add(f"## {TABLES} tables, nothing to do")
    rows = [
        _measure_case(stack, "the log rests", lambda: None),
        _measure_case(stack, "the log moves", lambda: _move_log(stack, other)),
    ]
    header = (
        "case",
        "statements (2) / rows at the source",
        "step alone, seconds",
        f"task `open_window`, seconds ({LIMIT_SECONDS:.0f})",
        "tasks",
    )
    report.table(header, rows)


def _configure(stack: Stack, folder: Path, names: list[TableName]) -> None:
    """Write the pipeline, and let the processes that start now use it."""
    tables = [{"source": str(name), "target": f"idle.{name.name.lower()}"} for name in names]
    document = {
        "sources": {"idle": {"conn_id": stack.connection_id}},
        "warehouse": {"conn_id": "warehouse"},
        "pipelines": {_PIPELINE: {"source": "idle", "tables": tables}},
    }
    config = folder / "idle.yaml"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    stack.airflow.stop()
    stack.config_file = config
    stack.use_source_database(_DATABASE)


def _move_log(stack: Stack, other: TableName) -> None:
    """Change a table that the pipeline does not read."""
    with stack.connect_source(_DATABASE) as connection:
        cursor = connection.cursor()
        cursor.execute(f"UPDATE {other} SET Amount = Amount + 1")
        cursor.execute("EXEC emulator.run_capture")


def _measure_case(stack: Stack, case: str, before: Callable[[], None]) -> tuple[object, ...]:
    before()
    step = json.loads(_command(stack, sys.executable, "-m", "benchmarks.idle_tables").splitlines()[-1])
    tasks: list[float] = []
    states: dict[str, str] = {}
    for _ in range(_RUNS):
        before()
        run_id = _run(stack)
        tasks.append(_task_seconds(stack, run_id, TASKS[0]))
        states = stack.airflow.task_states(_DAG_ID, run_id)
    seconds = ", ".join(f"{each:.1f}" for each in tasks)
    outcome = ", ".join(f"{task} {state}" for task, state in sorted(states.items()))
    return case, f"{step['batches']} / {step['rows']:,}", f"{step['seconds']:.2f}", seconds, outcome


def _run(stack: Stack) -> str:
    run_id = stack.airflow.trigger(_DAG_ID)

    def ended() -> bool:
        return any(run["dag_run_id"] == run_id and run["state"] in _ENDED for run in stack.airflow.runs(_DAG_ID))

    stack.airflow.wait_for(ended, f"run {run_id} to end", 300)
    return run_id


def _task_seconds(stack: Stack, run_id: str, task: str) -> float:
    found: dict[str, Any] = stack.airflow.call("GET", f"/dags/{_DAG_ID}/dagRuns/{run_id}/taskInstances/{task}")
    began, ended = (datetime.fromisoformat(found[key]) for key in ("start_date", "end_date"))
    return (ended - began).total_seconds()


def _command(stack: Stack, *command: str) -> str:
    done = subprocess.run(
        command, env=stack.airflow.environment(), cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def main() -> None:
    """Take the step in this process, with the connections of its environment, and print what it asked and took."""
    pipeline = App(load_config(config_path())).pipeline(_PIPELINE)
    with counted() as asked:
        began = time.perf_counter()
        open_next(pipeline)
        seconds = time.perf_counter() - began
    print(json.dumps({"batches": asked.batches, "rows": asked.control_rows, "seconds": seconds}))


if __name__ == "__main__":
    main()
