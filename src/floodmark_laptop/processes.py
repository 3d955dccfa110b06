"""Child processes that end with their parent: started with a log file and a mark, stopped with all descendants."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from embedded_postgres.parent_death import end_with_parent

MARK = "FLOODMARK_STACK"
"""The environment variable of every process of a stack, with the stack's state folder as its value."""

_SERVER_PORTS = range(10_000, 32_768)
"""Above those of most servers, and below those that Linux gives to connections."""


class LaptopError(Exception):
    """A failure of the laptop set-up. The message says why, and which log to read."""


@dataclass
class Child:
    """A running child process and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log_file: Path

    def check(self) -> None:
        """Raise LaptopError when the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise LaptopError(f"{self.name} ended with status {code}; see {self.log_file}\n{tail(self.log_file)}")

    def stop(self, timeout_seconds: float = 20.0) -> None:
        """Stop the child: SIGTERM, again at half of the time, then SIGKILL. Then kill the rest of its session."""
        for _ in range(2):
            if self.process.poll() is None:
                self.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout_seconds / 2)
        self.process.kill()
        self.process.wait()
        end_session(self.process.pid)
        if self.process.stdout is not None:
            self.process.stdout.close()


def start(
    name: str, command: Sequence[str], *, log_file: Path, environment: Mapping[str, str], read_stdout: bool = False
) -> Child:
    """Start ``command`` in a session of its own. stderr, and stdout unless it is read, go to the log."""
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if read_stdout else log,
            stderr=log,
            env=dict(environment),
            start_new_session=True,
            # Called from the main thread, before it starts others.
            preexec_fn=partial(end_with_parent, signal.SIGTERM),  # noqa: PLW1509
        )
    return Child(name, process, log_file)


def find_marked(state_dir: Path) -> list[psutil.Process]:
    """Return the processes that carry the mark of ``state_dir``."""
    return [process for process in psutil.process_iter() if _carries(process, state_dir)]


def stop_marked(state_dir: Path, timeout_seconds: float = 10.0) -> int:
    """End every process that carries the mark of ``state_dir``, left by a killed run. Return their number."""
    found = find_marked(state_dir)
    for process in found:
        _send(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(found, timeout=timeout_seconds)
    for process in alive:
        _send(process, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=timeout_seconds)
    return len(found)


def end_session(leader_pid: int) -> None:
    """Kill the remaining processes of a session that we started: Airflow's workers rename themselves and lose the
    mark."""
    left = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader_pid:
                process.kill()
                left.append(process)
        except (OSError, psutil.Error):
            continue
    psutil.wait_procs(left, timeout=5)


def free_port() -> int:
    """Return a free TCP port on 127.0.0.1, for a server that is started on it later, or again.

    No connection is given such a port for its own end. It could take one of the others before the server does.
    """
    while True:
        port = secrets.choice(_SERVER_PORTS)  # not of a seed that a test has set
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port


def tail(log_file: Path, lines: int = 8) -> str:
    """Return the last lines of a log, for an error message."""
    if not log_file.exists():
        return ""
    return "\n".join(f"    {line}" for line in log_file.read_text(errors="replace").splitlines()[-lines:])


def _carries(process: psutil.Process, state_dir: Path) -> bool:
    try:
        return process.pid != os.getpid() and process.environ().get(MARK) == str(state_dir)
    except (psutil.Error, OSError):
        return False


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
