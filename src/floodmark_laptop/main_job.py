"""The main job of ``make run``: first load, windows under a running workload, a last window, and the comparison."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pymssql

from floodmark_laptop import shop
from floodmark_laptop.processes import LaptopError
from floodmark_laptop.stack import Stack
from floodmark_laptop.workload import Workload

PIPELINE = SOURCE = "shop"
DAG_ID = f"cdc_{PIPELINE}"
DAG_IDS_BESIDE = (f"cdc_load_{PIPELINE}", f"cdc_drift_{SOURCE}")
"""Loads of single tables, and the search for drift. The DAG that asks about switches is never paused."""
TASKS = ("open_window", "load", "check", "advance")
WINDOWS_UNDER_LOAD = 3
TRANSACTIONS_PER_SECOND = 20.0
_RUN_SECONDS = 900.0
_CAPTURE_SECONDS = 120.0
_FINISHED = ("success", "failed")


@dataclass
class BackgroundWorkload:
    """The workload in a thread, with its own connection."""

    stack: Stack
    workload: Workload
    per_second: float = TRANSACTIONS_PER_SECOND
    """Its transactions."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="workload", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stop the workload. Raises LaptopError where it has failed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)
        if self._error is not None:
            raise LaptopError(f"the workload failed: {self._error}") from self._error

    def _run(self) -> None:
        try:
            self.workload.run(self._stop, self.per_second)
        except pymssql.Error as error:
            self._error = error


@dataclass(frozen=True)
class Job:
    """A pipeline over the sample database, by the way in which the database records its changes."""

    pipeline: str
    recording: str
    """The words for it."""
    enable: Callable[[Stack, pymssql.Connection], None]
    """Makes the database record its changes."""
    wait: Callable[[Stack, str], None]
    """Waits until the workload's last row, with this note, is recorded."""
    also: tuple[str, ...] = ()
    """More pipelines over the same database."""

    @property
    def pipelines(self) -> tuple[str, ...]:
        """Return all pipelines."""
        return self.pipeline, *self.also


def create_shop(stack: Stack, job: Job | None = None) -> Workload:
    """Create the sample database, which records its changes, and its first rows. Return its workload."""
    job = job or CDC_JOB
    with stack.connect_source("master") as connection:
        shop.create_database(connection)
    with stack.connect_source() as connection:
        shop.create_tables(connection)
        job.enable(stack, connection)
    workload = Workload(stack.connect_source(autocommit=False))
    workload.fill()
    tables, done = len(shop.TABLES), workload.transactions
    stack.say(f"database {shop.DATABASE}: {tables} tables, {job.recording} enabled, {done} transactions")
    return workload


def run_main_job(stack: Stack, windows_under_load: int = WINDOWS_UNDER_LOAD, job: Job | None = None) -> None:
    """Run everything up to the last window. Raises LaptopError at the first failure."""
    job = job or CDC_JOB
    workload = create_shop(stack, job)
    stack.say("starting Airflow: API server, scheduler, DAG processor, triggerer")
    stack.start_airflow()
    stack.say(f"Airflow: {stack.airflow.url}")
    background = BackgroundWorkload(stack, workload)
    background.start()
    stack.say(f"workload: about {TRANSACTIONS_PER_SECOND:.0f} transactions a second")
    for pipeline in job.pipelines:
        stack.airflow.wait_for_dag(_dag_of(pipeline))
        stack.airflow.unpause(_dag_of(pipeline))
    _run_windows(stack, "first load", job)
    for number in range(1, windows_under_load + 1):
        _run_windows(stack, f"window {number}, workload running", job)
    background.finish()
    job.wait(stack, workload.mark_end())
    stack.say(
        f"workload stopped after {workload.transactions} transactions committed and {workload.rolled_back} rolled back"
    )
    _run_windows(stack, "last window", job)


def _run_windows(stack: Stack, title: str, job: Job) -> None:
    for pipeline in job.pipelines:
        run_window(stack, f"{pipeline}, {title}" if job.also else title, _dag_of(pipeline))


def _dag_of(pipeline: str) -> str:
    return f"cdc_{pipeline}"


def wait_for_capture(stack: Stack, note: str) -> None:
    """Wait until the capture job has written the workload's last row into the change table."""
    with stack.connect_source() as connection:
        cursor = connection.cursor()

        def captured() -> bool:
            cursor.execute("SELECT COUNT(*) FROM cdc.dbo_Payments_CT WHERE Note = %s", (note,))
            row = cursor.fetchone()
            return row is not None and row[0] == 1

        stack.airflow.wait_for(captured, "the capture job to catch up", _CAPTURE_SECONDS)


CDC_JOB = Job(PIPELINE, "CDC", lambda _, connection: shop.enable_cdc(connection), wait_for_capture)


def run_window(stack: Stack, title: str, dag_id: str = DAG_ID) -> str:
    """Trigger the DAG and wait for this run and every earlier one. Return its id.

    Raises LaptopError where one failed.
    """
    began = time.monotonic()
    run_id = stack.airflow.trigger(dag_id)

    def finished() -> bool:
        runs = stack.airflow.runs(dag_id)
        for run in runs:
            if run["state"] == "failed":
                raise LaptopError(_explain_failure(stack, dag_id, run["dag_run_id"]))
        return all(run["state"] in _FINISHED for run in runs)

    stack.airflow.wait_for(finished, f"{dag_id} ({title}) to finish", _RUN_SECONDS)
    states = stack.airflow.task_states(dag_id, run_id)
    order = [task for task in TASKS if task in states]
    what = ", ".join(f"{task} {states[task]}" for task in order)
    if states.get(TASKS[0]) == "skipped":
        what = "nothing left to read, the previous scheduled run has read all changes"
    stack.say(f"{title}: {what} ({time.monotonic() - began:.0f} s)")
    return run_id


def _explain_failure(stack: Stack, dag_id: str, run_id: str) -> str:
    states = stack.airflow.task_states(dag_id, run_id)
    failed = next((task for task, state in states.items() if state == "failed"), None)
    folder = stack.airflow.task_log_folder(dag_id, run_id)
    if failed is None:
        return f"run {run_id} of {dag_id} failed; see {folder}"
    logs = sorted((folder / f"task_id={failed}").glob("*.log"))
    return (
        f"task {failed} of {dag_id} failed: {last_error(logs[-1]) if logs else ''}\nsee {logs[-1] if logs else folder}"
    )


def last_error(log_file: Path) -> str:
    """Return the message of the last error in a task's log (JSON lines): Floodmark's own, else Airflow's.

    Airflow's entry follows ours and repeats it with a stack trace, which does not help the user of the command.
    """
    lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [entry for entry in map(_parse_entry, lines) if entry.get("level") in ("error", "critical")]
    own = [entry for entry in errors if str(entry.get("logger", "")).startswith("floodmark")]
    if own or errors:
        return str((own or errors)[-1].get("event", ""))
    return lines[-1] if lines else ""


def _parse_entry(line: str) -> dict[str, object]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
