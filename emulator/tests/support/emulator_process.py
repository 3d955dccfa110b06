"""One running emulator for tests: the real command in a process of its own, and real drivers connected to it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import psutil

from embedded_postgres import make_passable_folder
from prepared_folders import copy_certificate, copy_emulator_data
from sqlserver_emulator import testing
from sqlserver_emulator.testing import STOP_SECONDS, RunningEmulator

__all__ = [
    "MACHINE_AUTHORITIES",
    "STOP_SECONDS",
    "Emulator",
    "choose_odbc_provider",
    "kill_family",
    "running_emulator",
    "trust",
]

MACHINE_AUTHORITIES = os.environ.get("SSL_CERT_FILE")
"""The value before ``trust`` changes it: the authorities of a network that has its own."""


def choose_odbc_provider() -> None:
    """mssql-python loads msodbcsql18 where the system has libltdl, and otherwise its Rust driver; before its import."""
    try:
        ctypes.CDLL("libltdl.so.7")
    except OSError:
        os.environ.setdefault("MSSQL_PYTHON_NATIVE_PROVIDER", "mssql-odbc")


class Emulator(RunningEmulator):
    """Where an emulator listens, and connections to it. Encrypted ones verify its certificate."""

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
    """``testing.running_emulator``, whose emulator knows real drivers; a new one has the tests' certificate.

    Its data are copied from a prepared folder, unless it is of a release of its own.
    """
    if "--release" not in arguments:
        copy_emulator_data(data_dir)
    make_passable_folder(data_dir)
    copy_certificate(data_dir / "tls")
    with testing.running_emulator(data_dir, *arguments, databases=databases) as running:
        yield Emulator(**{each.name: getattr(running, each.name) for each in fields(running)})


def capture_jobs(emulator: Emulator) -> list[psutil.Process]:
    """Return the processes of its capture jobs."""
    jobs = []
    for child in emulator.process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # connections come and go
            if "sqlserver_emulator.cdc.agent.process" in child.cmdline():
                jobs.append(child)
    return jobs


def kill_family(emulator: Emulator) -> None:
    """Kill the server and every process that it started, as a machine does that loses its power."""
    family: list[Any] = [emulator.process, *emulator.process.children(recursive=True)]
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=30)
