"""Short runs under Airflow: one with a few hundred changes in five tables, step by step, and one with nothing to do."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.emulator import source_connection
from benchmarks.measuring import Report
from floodmark.core.schema import TableName
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver import driver
from floodmark_laptop import shop
from floodmark_laptop.main_job import DAG_ID, TASKS, create_shop, run_window, wait_for_capture
from floodmark_laptop.processes import free_port
from floodmark_laptop.stack import Stack
from floodmark_laptop.workload import Workload

RUN_LIMIT = 8.0
RESIDENT_LIMIT = 4.0
_SERVER_READY = "Loads can connect to"
_RUNS = 3
_TRANSACTIONS = 200
"""Of a short run: some 500 changes."""
_SPARK_START = re.compile(r"is up after ([\d.]+) s")
_LOAD = re.compile(r"The load took ([\d.]+) s")

_WHOLE = "whole"
Parts = dict[str, float]
"""Seconds by the part of a run."""


def measure(stack: Stack, report: Report) -> None:
    stack.use_source_database(shop.DATABASE)
    workload = create_shop(stack)
    stack.start_airflow()
    stack.airflow.wait_for_dag(DAG_ID)
    wait_for_capture(stack, workload.mark_end())
    stack.airflow.unpause(DAG_ID)
    run_window(stack, "first load")
    report.add(f"## A small run under Airflow: {_TRANSACTIONS} transactions in {len(shop.TABLES)} tables")
    _measure_small(stack, workload, report, f"without a resident Spark (at most {RUN_LIMIT:.0f})")
    with _resident_spark(stack):
        # The first load of a server compiles what the others use.
        _small_run(stack, workload)
        _measure_small(stack, workload, report, f"with a resident Spark (at most {RESIDENT_LIMIT:.0f})")
    _measure_idle(stack, report)


@contextmanager
def _resident_spark(stack: Stack) -> Iterator[None]:
    """Start a Spark Connect server, and Airflow again with a connection to it."""
    port = free_port()
    program = str(Path(sys.executable).with_name("floodmark"))
    command = [program, "spark-server", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            if not any(_SERVER_READY in line for line in server.stdout):
                raise RuntimeError("the Spark Connect server did not start")
            found = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": port}
            stack.airflow.stop()
            stack.airflow.connections = {**stack.airflow.connections, "spark_default": json.dumps(found)}
            stack.start_airflow()
            yield
        finally:
            server.terminate()


def _measure_small(stack: Stack, workload: Workload, report: Report, how: str) -> None:
    runs = [_small_run(stack, workload) for _ in range(_RUNS)]
    whole = [each.pop(_WHOLE) for each in runs]
    middle = statistics.median_low(whole)
    rows: list[tuple[object, ...]] = [
        (f"**whole run {how}**, median of {_RUNS}", f"**{middle:.1f}**"),
        ("– each of them", ", ".join(f"{each:.1f}" for each in whole)),
    ]
    rows += [(f"– {part}", f"{taken:.1f}") for part, taken in runs[whole.index(middle)].items()]
    report.table(("from the start of open_window to the end of advance", "seconds"), rows)


def _small_run(stack: Stack, workload: Workload) -> Parts:
    while True:
        for _ in range(_TRANSACTIONS):
            workload.step()
        wait_for_capture(stack, workload.mark_end())
        run_id = run_window(stack, "a small run")
        # A scheduled run may have come first.
        if stack.airflow.task_states(DAG_ID, run_id)["load"] == "success":
            return _parts(stack, run_id)


def _parts(stack: Stack, run_id: str) -> Parts:
    """Return the seconds of a run as a whole, of each task, and between tasks; those of ``load`` further divided."""
    answer = stack.airflow.call("GET", f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances")
    tasks = {task["task_id"]: task for task in answer["task_instances"]}
    times = {name: (_moment(tasks[name]["start_date"]), _moment(tasks[name]["end_date"])) for name in TASKS}
    parts = {_WHOLE: times[TASKS[-1]][1] - times[TASKS[0]][0]}
    for name, (began, ended) in times.items():
        if name == "load":
            start, load = _load_seconds(stack, run_id)
            parts |= {
                "load: start of Spark's session": start,
                "load: read, net, stage, merge": load,
                "load: task, start of Java or Python, end of Spark": ended - began - start - load,
            }
        else:
            parts[name] = ended - began
    waits = sum(times[later][0] - times[earlier][1] for earlier, later in pairwise(TASKS))
    return parts | {"Airflow between the four tasks": waits}


def _load_seconds(stack: Stack, run_id: str) -> tuple[float, float]:
    text = "\n".join(_messages(stack, run_id))
    start, load = _SPARK_START.search(text), _LOAD.search(text)
    if load is None:
        raise RuntimeError(f"the load did not say how long it took:\n{text[-2000:]}")
    # Few changes are staged without Spark.
    return float(start[1]) if start else 0.0, float(load[1])


def _messages(stack: Stack, run_id: str) -> Iterator[str]:
    for path in sorted((stack.airflow.task_log_folder(DAG_ID, run_id) / "task_id=load").glob("*.log")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield str(json.loads(line).get("event", ""))


def _measure_idle(stack: Stack, report: Report) -> None:
    report.add("## A run with nothing to do")
    run_window(stack, "nothing to do")
    last = stack.airflow.runs(DAG_ID)[-1]
    states = stack.airflow.task_states(DAG_ID, last["dag_run_id"])
    report.table(
        ("what", "figure", "target"),
        [
            ("statements at the source", _count_statements(stack), "at most 2"),
            ("tasks", ", ".join(f"{task} {state}" for task, state in sorted(states.items())), "no Spark"),
            ("seconds in the scheduler, from start to end of the run", f"{_run_seconds(last):.1f}", ""),
        ],
    )


def _count_statements(stack: Stack) -> int:
    """How many batches the look at the source sends, for all tables of the sample."""
    sent: list[str] = []
    original = driver.SourceSession.fetch_sets

    def counting(session: driver.SourceSession, text: str, *rest: Any) -> list[list[tuple[Any, ...]]]:
        sent.append(text)
        return original(session, text, *rest)

    with patch.object(driver.SourceSession, "fetch_sets", counting):
        SqlServerSource(source_connection(stack, shop.DATABASE)).read_snapshot(
            [TableName("dbo", name) for name in shop.TABLES]
        )
    return len(sent)


def _run_seconds(run: dict[str, Any]) -> float:
    return _moment(run["end_date"]) - _moment(run["start_date"])


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
