"""``python -m floodmark_laptop run | up | down``: the commands behind the Makefile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import pymssql
import typer
from rich.console import Console

from embedded_postgres import make_passable_folder
from floodmark_laptop import lake_job, streaming_job
from floodmark_laptop.comparison import print_comparison
from floodmark_laptop.devices import CONSUMER, SimulatedFleet
from floodmark_laptop.devices_job import CONNECTION_ID, print_devices, run_devices_job
from floodmark_laptop.main_job import (
    DAG_ID,
    DAG_IDS_BESIDE,
    WINDOWS_UNDER_LOAD,
    BackgroundWorkload,
    create_shop,
    run_main_job,
    run_window,
)
from floodmark_laptop.processes import LaptopError, tail
from floodmark_laptop.stack import REPOSITORY, Stack, default_state_dir, running_pid
from floodmark_laptop.streaming_job import CapturedHub, sources_job

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
_NARROWEST = 130
_console = Console(highlight=False, soft_wrap=True, width=max(shutil.get_terminal_size().columns, _NARROWEST))
_UP = "up; stop with: make down"
"""The last line that ``up`` shows."""
_UP_SECONDS = 180.0
_DOWN_SECONDS = 90.0


class _Progress:
    """A printer of steps, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        _console.print(f"[dim]{time.monotonic() - self._began:6.1f}s[/dim]  ", end="")
        _console.print(text, markup=False)


@contextmanager
def _failures_explained(state_dir: Path) -> Iterator[None]:
    """End with one message where a process fails, or the user interrupts."""
    try:
        yield
    except LaptopError as error:
        _fail(f"{error}\nAll logs: {state_dir / 'logs'}")
    except KeyboardInterrupt:
        _fail("interrupted; all started processes have been stopped")


@app.command()
def run(
    windows: Annotated[int, typer.Option(help="Windows during the workload, between first load and last window.")] = (
        WINDOWS_UNDER_LOAD
    ),
) -> None:
    """Run the main job on embedded defaults. Exit status 0 only when every table is equal."""
    signal.signal(signal.SIGTERM, _interrupt)
    state_dir = default_state_dir()
    with _failures_explained(state_dir), Stack(state_dir, _Progress()) as stack:
        run_main_job(stack, windows)
        equal = print_comparison(stack, _console)
    raise typer.Exit(0 if equal else 1)


@app.command()
def run_lake(
    windows: Annotated[int, typer.Option(help="Windows during the workload, between first load and last window.")] = (
        WINDOWS_UNDER_LOAD
    ),
) -> None:
    """Run the main job into a lake. Exit status 0 only when every table is equal, also to a reader without Java."""
    signal.signal(signal.SIGTERM, _interrupt)
    folder = default_state_dir()
    state_dir = folder.with_name(f"{folder.name}-lake")
    lake = state_dir / "lake"
    connections = {lake_job.CONNECTION_ID: {"conn_type": "fs", "extra": {"path": str(lake)}}}
    config = REPOSITORY / "include" / "lake.yaml"
    with (
        _failures_explained(state_dir),
        Stack(state_dir, _Progress(), config_file=config, connections=connections) as stack,
    ):
        run_main_job(stack, windows)
        equal = print_comparison(stack, _console)
        equal = lake_job.print_read_back(stack, lake, _console) and equal
    raise typer.Exit(0 if equal else 1)


@app.command()
def run_sources(
    windows: Annotated[int, typer.Option(help="Windows during the workload, between first load and last window.")] = (
        WINDOWS_UNDER_LOAD
    ),
) -> None:
    """Run pipelines over a database with change tracking, over its event stream, and over a fleet of devices.

    Exit status 0 only when every table and every device is equal.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    folder = default_state_dir()
    state_dir = folder.with_name(f"{folder.name}-sources")
    fleet = SimulatedFleet(state_dir / "devices", state_dir / "synced")
    devices = {"conn_type": "fs", "extra": {"path": str(fleet.synced), "shipped": True, "consumer": CONSUMER}}
    hub = CapturedHub(state_dir / "captures")
    connections = {CONNECTION_ID: devices, streaming_job.CONNECTION_ID: hub.connection()}
    config = REPOSITORY / "include" / "sources.yaml"
    with (
        _failures_explained(state_dir),
        Stack(
            state_dir,
            _Progress(),
            config_file=config,
            connections=connections,
            emulator_options=hub.emulator_options,
        ) as stack,
    ):
        hub.clear()
        stack.say(f"event stream: changes go to {hub.folder}")
        job = sources_job()
        run_main_job(stack, windows, job)
        compared = [print_comparison(stack, _console, pipeline) for pipeline in job.pipelines]
        run_devices_job(stack, fleet)
        equal = print_devices(stack, fleet, _console) and all(compared)
    raise typer.Exit(0 if equal else 1)


@app.command()
def up() -> None:
    """Start everything and leave it running, including the workload."""
    state_dir = default_state_dir()
    if running_pid(state_dir) is not None:
        _fail(f"Floodmark already runs in {state_dir}; stop it with: make down")
    make_passable_folder(state_dir)
    output = state_dir / "up.log"
    output.unlink(missing_ok=True)
    output.touch(mode=0o600)  # it contains the password
    with output.open("ab") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "floodmark_laptop", "supervise"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    if not _follow(output, supervisor):
        _fail(f"the start failed; see {output}")


@app.command(hidden=True)
def supervise() -> None:
    """Run the stack until SIGTERM; ``up`` starts this in the background."""
    signal.signal(signal.SIGTERM, _interrupt)
    state_dir = default_state_dir()
    try:
        with Stack(state_dir, _Progress()) as stack:
            background = BackgroundWorkload(stack, create_shop(stack))
            stack.start_airflow()
            background.start()
            for dag_id in (DAG_ID, *DAG_IDS_BESIDE):
                stack.airflow.wait_for_dag(dag_id)
                stack.airflow.unpause(dag_id)
            airflow = stack.airflow
            stack.say(f"Airflow UI: {airflow.url}  user: admin  password: {airflow.password}")
            stack.say(f"status page: {airflow.url}/plugin/floodmark_status")
            stack.say(f"data docs: {stack.data_docs_dir}   logs: {stack.logs_dir}")
            environment = state_dir / "environment"
            airflow.write_environment(environment)
            stack.say("after the first load a column is added to dbo.Customers; approve it under Required Actions")
            stack.say(f"to use the floodmark command in a shell: . {environment}")
            stack.say(_UP)
            _show_drift(stack)
            threading.Event().wait()
    except LaptopError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _console.print("stopped")


def _show_drift(stack: Stack) -> None:
    """Load the tables, then add a column at the source: a drift to approve. A failure ends nothing."""
    try:
        run_window(stack, "first load")
        with stack.connect_source() as connection, connection.cursor() as cursor:
            cursor.execute("ALTER TABLE dbo.Customers ADD Newsletter bit NULL")
        stack.say("column dbo.Customers.Newsletter was added at the source: the next run finds it")
    except (LaptopError, pymssql.Error) as error:
        stack.say(f"no sample of drift: {error}")


@app.command()
def down() -> None:
    """Stop what ``up`` started."""
    state_dir = default_state_dir()
    pid = running_pid(state_dir)
    if pid is None:
        _console.print("nothing is running")
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_SECONDS
    while running_pid(state_dir) is not None:
        if time.monotonic() > deadline:
            _fail(f"process {pid} did not stop; see {state_dir / 'up.log'}")
        time.sleep(0.3)
    _console.print("stopped")


def _follow(output: Path, supervisor: subprocess.Popen[bytes]) -> bool:
    """Show the supervisor's output until it reports that it is up. Return False when it ended or took too long."""
    deadline = time.monotonic() + _UP_SECONDS
    with output.open("r", encoding="utf-8") as lines:
        while time.monotonic() < deadline:
            line = lines.readline()
            if line:
                _console.print(line.rstrip("\n"), markup=False)
                if _UP in line:
                    return True
            elif supervisor.poll() is not None:
                _console.print(tail(output), markup=False)
                return False
            else:
                time.sleep(0.2)
    return False


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _fail(message: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(message, markup=False, style="red")
    raise typer.Exit(1)


if __name__ == "__main__":
    app()
