"""A command that runs and is to be killed: what it has said so far, and its processes by what they do."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from typing import TextIO

import psutil


class RunningCommand:
    """process: the leader of a session of its own. output: of all its processes."""

    def __init__(self, arguments: Sequence[str], process: subprocess.Popen[str] | BaseProcess, output: TextIO) -> None:
        assert process.pid is not None
        self.arguments = tuple(arguments)
        self.pid = process.pid
        self._process = process
        self._lines: list[str] = []
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(output,), daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode if isinstance(self._process, subprocess.Popen) else self._process.exitcode

    def says(self, pattern: str, limit_seconds: float) -> bool:
        """Wait for a line that matches; False when the command has ended without it."""
        wanted = re.compile(pattern)
        deadline = time.monotonic() + limit_seconds
        checked = 0
        with self._changed:
            while True:
                if any(wanted.search(line) for line in self._lines[checked:]):
                    return True
                checked = len(self._lines)
                if self._ended:
                    return False
                left = deadline - time.monotonic()
                assert left > 0, f"{self.arguments} hangs:\n{self.output}"
                self._changed.wait(left)

    def wait(self, limit_seconds: float) -> int:
        """Until it has ended and everything that it said was read; the exit status."""
        deadline = time.monotonic() + limit_seconds
        self._reader.join(limit_seconds)
        status = self._join(deadline - time.monotonic())
        assert status is not None and not self._reader.is_alive(), f"{self.arguments} hangs:\n{self.output}"
        return status

    def wait_for_leader(self, limit_seconds: float) -> bool:
        """Whether it has ended in that time, what it has started apart."""
        return self._join(limit_seconds) is not None

    def kill(self) -> None:
        """kill -9 of all its processes, also of those that are begun meanwhile."""
        self.kill_leader()
        while others := self.processes():
            kill(others)

    def kill_leader(self) -> None:
        """Alone: what it has started goes on."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._join(30)

    def pause(self, *, part: str = "") -> list[psutil.Process]:
        """SIGSTOP of all its processes, also of those that are begun meanwhile, or of its load alone."""
        paused: list[psutil.Process] = []
        while others := [each for each in self._live(part) if each not in paused]:
            for process in others:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
                    paused.append(process)
        return paused

    def _live(self, part: str) -> list[psutil.Process]:
        if part:
            return self.processes_of(part)
        leader = [psutil.Process(self.pid)] if self.returncode is None and psutil.pid_exists(self.pid) else []
        return [*leader, *self.processes()]

    def processes(self) -> list[psutil.Process]:
        """All that live of its session but the leader."""
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if pid != self.pid and os.getsid(pid) == self.pid:
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def processes_of(self, part: str) -> list[psutil.Process]:
        """One that does a part of the load alone; none while it is not there."""
        others = self.processes()
        if part == "load":
            return others[-1:]
        found = [each for each in others if _does(each, part)]
        # Workers of tasks are forked from one that starts them.
        found = [each for each in found if _does(psutil.Process(each.ppid()), part)] or found
        return found[-1:]

    def _join(self, seconds: float) -> int | None:
        if isinstance(self._process, subprocess.Popen):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(seconds, 0))
        else:
            self._process.join(max(seconds, 0))
        return self.returncode

    def _read(self, output: TextIO) -> None:
        with output:
            for line in output:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


_WORDS = {"driver": "load_window.py", "worker": "floodmark.spark.daemon"}


def _does(process: psutil.Process, part: str) -> bool:
    with contextlib.suppress(psutil.Error):
        if part == "jvm":
            return process.name() == "java"
        return process.name().startswith("python") and any(_WORDS[part] in word for word in process.cmdline())
    return False


def wake(processes: Sequence[psutil.Process]) -> None:
    """SIGCONT of processes that were paused."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def kill(processes: Sequence[psutil.Process]) -> None:
    """kill -9 of all of them, and wait until they are gone."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=30)
