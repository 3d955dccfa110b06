"""A run with nothing to do: statements at the source, and its time in the scheduler."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from unittest.mock import patch

from benchmarks.emulator import source_connection
from benchmarks.measuring import Report
from floodmark.core.schema import TableName
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver import driver
from floodmark_laptop import shop
from floodmark_laptop.main_job import DAG_ID, create_shop, run_window, wait_for_capture
from floodmark_laptop.stack import Stack


def measure(stack: Stack, report: Report) -> None:
    report.add("## A run with nothing to do")
    stack.use_source_database(shop.DATABASE)
    workload = create_shop(stack)
    stack.start_airflow()
    stack.airflow.wait_for_dag(DAG_ID)
    wait_for_capture(stack, workload.mark_end())
    stack.airflow.unpause(DAG_ID)
    run_window(stack, "first load")
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
    began, ended = (datetime.fromisoformat(run[key]) for key in ("start_date", "end_date"))
    return (ended - began).total_seconds()
