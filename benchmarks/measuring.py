"""Clocks, medians, resident memory, and the report's lines."""

from __future__ import annotations

import secrets
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pymssql

from floodmark_laptop.stack import Stack


@dataclass
class Report:
    """Collects Markdown; every line is also printed at once."""

    lines: list[str] = field(default_factory=list)

    def add(self, text: str = "") -> None:
        print(text, flush=True)
        self.lines.append(text)

    def table(self, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
        self.add("| " + " | ".join(header) + " |")
        self.add("|" + "---|" * len(header))
        for row in rows:
            self.add("| " + " | ".join(str(cell) for cell in row) + " |")
        self.add()


MASK_KEY = "mask_key"
"""The connection with the secret of hashed columns."""


@contextmanager
def temporary_stack() -> Iterator[tuple[Stack, Path]]:
    """Start a stack in a folder of its own. Yield both; nothing of them is left."""
    folder = Path(tempfile.mkdtemp(prefix="floodmark-bench-"))
    folder.chmod(0o755)  # PostgreSQL, which may run as another user, has to pass it
    try:
        secret = {MASK_KEY: {"conn_type": "generic", "password": secrets.token_hex(32)}}
        with Stack(folder / "stack", print, connections=secret) as stack:
            yield stack, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def create_database(master: pymssql.Connection, name: str) -> None:
    """Create a database of the source, in place of those of earlier measurements.

    The emulator has one log for all databases, so that the capture job of each reads what the others write.
    """
    cursor = master.cursor()
    cursor.execute("SELECT QUOTENAME(name) FROM sys.databases WHERE is_cdc_enabled = 1")
    for (earlier,) in cursor.fetchall():
        cursor.execute(f"ALTER DATABASE {earlier!s} SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
        cursor.execute(f"DROP DATABASE {earlier!s}")
    cursor.execute(f"CREATE DATABASE [{name}]")


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def median_seconds(action: Callable[[], object], rounds: int = 3) -> float:
    return statistics.median(seconds(action) for _ in range(rounds))


def cpu_seconds(root: int) -> float:
    """Return the processor time of a process and of all that came from it, also of those that have ended."""
    total = 0.0
    process = psutil.Process(root)
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended, and its parent has its time
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def peak_memory(pids: Callable[[], list[int]]) -> Iterator[list[int]]:
    """Samples the summed proportional bytes (PSS) of processes twice a second; the list's one element is the peak.

    A page that processes share, as forked workers do, counts once. Sampling it costs tens of milliseconds of the
    machine that is measured: no more often.
    """
    peak = [0]
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(0.5):
            total = 0
            for pid in pids():
                try:
                    total += psutil.Process(pid).memory_full_info().pss
                except psutil.Error:
                    continue
            peak[0] = max(peak[0], total)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()
