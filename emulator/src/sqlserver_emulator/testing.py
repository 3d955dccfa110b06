"""For tests, also those of other projects: a running emulator, as a context manager and as a pytest fixture.

In the conftest.py next to your tests: ``pytest_plugins = ["sqlserver_emulator.testing"]``; a test then asks for
``sqlserver_emulator``. The emulator runs in a process of its own, never in the test's: the bulk interfaces of some
drivers hold Python's lock while they wait for the network. Its processes end with the test run, also a killed one.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from embedded_postgres.parent_death import end_with_parent

START_SECONDS = 60.0
STOP_SECONDS = 30.0
_PRINTING_SECONDS = 1.0
_PASSWORD_VARIABLE = "SQLSERVER_EMULATOR_SA_PASSWORD"  # noqa: S105 - a variable's name


class EmulatorTestError(Exception):
    """The emulator did not start, or left processes behind."""


@dataclass(frozen=True)
class RunningEmulator:
    """Where it listens, and how to log in. ``ca_file`` verifies its certificate."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    ca_file: Path
    databases: tuple[str, ...]
    process: psutil.Process = field(repr=False)
    secondary_port: int | None = None
    """With the argument ``--secondary-port``."""


@contextmanager
def running_emulator(
    data_dir: Path, *arguments: str, databases: Sequence[str] = ("Test",)
) -> Iterator[RunningEmulator]:
    """Start ``sqlserver-emulator`` on a free port, wait until it is ready, stop it at the end.

    ``arguments`` go to the command. As root, all parents of ``data_dir`` must be open to others: PostgreSQL runs as
    nobody then. Raises EmulatorTestError.
    """
    command = [sys.executable, "-m", "sqlserver_emulator", "--port", "0", "--data", str(data_dir), *arguments]
    for database in databases:
        command += ["--database", database]
    environment = {name: value for name, value in os.environ.items() if name != _PASSWORD_VARIABLE}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        # Nothing in it that a fork under threads could break.
        preexec_fn=lambda: end_with_parent(signal.SIGTERM),  # noqa: PLW1509
    )
    try:
        yield _read_ready_line(process)
    finally:
        _stop(process)


@pytest.fixture(scope="session")
def sqlserver_emulator() -> Iterator[RunningEmulator]:
    """One emulator for the whole run, with the database Test, its capture job scanning ten times a second."""
    folder = Path(tempfile.mkdtemp(prefix="sqlserver-emulator-"))
    folder.chmod(0o755)
    try:
        with running_emulator(folder / "data", "--capture-interval", "0.1") as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_ready_line(process: subprocess.Popen[str]) -> RunningEmulator:
    if process.stdout is None:
        raise EmulatorTestError("the emulator's output is not read")
    readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    line = process.stdout.readline() if readable else ""
    if not line:
        status = process.poll()
        raise EmulatorTestError(f"not ready in {START_SECONDS:.0f} s (exit status {status}); see its stderr")
    ready = json.loads(line)
    return RunningEmulator(
        host=ready["host"],
        port=ready["port"],
        user=ready["user"],
        password=Path(ready["password_file"]).read_text("utf-8").strip(),
        ca_file=Path(ready["ca_file"]),
        databases=tuple(ready["databases"]),
        process=psutil.Process(process.pid),
        secondary_port=ready["secondary_port"],
    )


def _stop(process: subprocess.Popen[str]) -> None:
    """SIGTERM, and afterwards neither it nor a child of it may run."""
    family: list[psutil.Process] = []
    if process.poll() is None:
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGUSR1)  # it prints what its threads do
        time.sleep(_PRINTING_SECONDS)
        raise
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for left in alive:
        left.kill()
    if alive:
        raise EmulatorTestError(f"the emulator left processes behind: {alive}")
