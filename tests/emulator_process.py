"""One running emulator for tests: the real command in a process of its own, and real drivers connected to it."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

START_SECONDS = 60.0
STOP_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1


def choose_odbc_provider() -> None:
    """mssql-python loads msodbcsql18 where the system has libltdl, and otherwise its Rust driver; before its import."""
    try:
        ctypes.CDLL("libltdl.so.7")
    except OSError:
        os.environ.setdefault("MSSQL_PYTHON_NATIVE_PROVIDER", "mssql-odbc")


@dataclass(frozen=True)
class Emulator:
    """Where an emulator listens, and connections to it. Encrypted ones verify its certificate."""

    host: str
    port: int
    user: str
    password: str
    ca_file: Path
    databases: tuple[str, ...]
    process: psutil.Process = field(repr=False)

    def connect_pymssql(self, database: str = "", **options: Any) -> Any:
        import pymssql

        return pymssql.connect(
            server=self.host,
            port=str(self.port),
            user=self.user,
            password=self.password,
            database=database or self.databases[0],
            **options,
        )

    def connect_mssql_python(self, database: str = "", *, encrypt: str = "yes", **options: Any) -> Any:
        import mssql_python

        text = (
            f"Server={self.host},{self.port};Database={database or self.databases[0]};"
            f"UID={self.user};PWD={{{self.password}}};Encrypt={encrypt};ConnectRetryCount=0"
        )
        trust(self.ca_file)
        return mssql_python.connect(text, **options)


def trust(ca_file: Path) -> None:
    """OpenSSL verifies against this file alone, from now on: threads may be connecting at the same time.

    mssql-python's Rust driver reads the file at its first connection only: one CA for all servers of a test process.
    """
    os.environ["SSL_CERT_FILE"] = str(ca_file)


@contextmanager
def running_emulator(data_dir: Path, *arguments: str, databases: Sequence[str] = ("Test",)) -> Iterator[Emulator]:
    """Start the command, wait for its line, stop it, and fail if anything that it started is left."""
    command = [sys.executable, "-m", "sqlserver_emulator", "--port", "0", "--data", str(data_dir), *arguments]
    for database in databases:
        command += ["--database", database]
    # prctl does nothing that a fork under threads could break.
    environment = {name: value for name, value in os.environ.items() if name != "SQLSERVER_EMULATOR_SA_PASSWORD"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=_die_with_parent,  # noqa: PLW1509
    )
    try:
        yield _read_ready_line(process)
    finally:
        stop_emulator(process)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _read_ready_line(process: subprocess.Popen[str]) -> Emulator:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    line = process.stdout.readline() if readable else ""
    assert line, f"the emulator was not ready in {START_SECONDS:.0f} s (exit status {process.poll()}); see its stderr"
    ready = json.loads(line)
    return Emulator(
        host=ready["host"],
        port=ready["port"],
        user=ready["user"],
        password=Path(ready["password_file"]).read_text("utf-8").strip(),
        ca_file=Path(ready["ca_file"]),
        databases=tuple(ready["databases"]),
        process=psutil.Process(process.pid),
    )


def stop_emulator(process: subprocess.Popen[str]) -> None:
    """SIGTERM, and afterwards neither it nor a child of it may run."""
    family: list[psutil.Process] = []
    if process.poll() is None:
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
    try:
        process.wait(STOP_SECONDS)
    finally:
        process.kill()
        if process.stdout is not None:
            process.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for left in alive:
        left.kill()
    assert not alive, f"the emulator left processes behind: {alive}"
