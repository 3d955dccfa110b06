"""The common settings of Floodmark's DAGs: owner, tags, retries, one run at a time, and an alert for a failed run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_parsing_context

from floodmark.orchestration.callbacks import failure_callback
from floodmark.orchestration.names import OWNER

RETRIES = 3
RETRY_DELAY = timedelta(seconds=20)
MAX_RETRY_DELAY = timedelta(minutes=5)
# Runs before the DAG is first unpaused are never repeated; the date only has to be in the past.
_START = datetime(2026, 1, 1, tzinfo=UTC)


def is_needed(dag_id: str) -> bool:
    """Return whether this process needs a DAG. The process of a task parses the DAG file for a single one."""
    needed = get_parsing_context().dag_id
    return needed is None or needed == dag_id


def make_dag(
    dag_id: str,
    *,
    source: str,
    tags: tuple[str, ...] = (),
    config_path: Path,
    failed: str,
    failed_by_task: Mapping[str, str] | None = None,
    subject: str,
    max_active_runs: int = 1,
    **own: Any,
) -> DAG:
    """Return a DAG with the common settings. A missed run is not repeated: the next one does the same.

    failed: the kind of alert that a failed run raises, about ``subject``. failed_by_task: another kind, by the id of
    the task that failed. own: further arguments of ``DAG``.
    """
    return DAG(
        dag_id=dag_id,
        start_date=_START,
        catchup=False,
        max_active_runs=max_active_runs,
        tags=[OWNER, "cdc", *tags, f"source:{source}"],
        on_failure_callback=failure_callback(config_path, failed, subject, failed_by_task or {}),
        default_args={
            "owner": OWNER,
            "retries": RETRIES,
            "retry_delay": RETRY_DELAY,
            "retry_exponential_backoff": 2,
            "max_retry_delay": MAX_RETRY_DELAY,
        },
        **own,
    )
