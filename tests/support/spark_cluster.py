"""A standalone Spark cluster on loopback, from the jars of the wheel: a master and two workers with one core each.

Its processes have an environment of their own, without any variable of the caller.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from floodmark.spark.launch.standalone import node_command, node_environment
from floodmark_laptop.processes import free_port
from hidden_folders import hidden

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_READY_SECONDS = 120
_WORKERS = 2
FRUGAL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options for a Java process that lives for a minute."""


class SparkCluster:
    """``is_elsewhere``: the workers see neither the clone nor the virtual environment."""

    def __init__(self, folder: Path, is_elsewhere: bool = False) -> None:
        self._folder = folder
        self._is_elsewhere = is_elsewhere
        self._port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        """The URL for the Spark connection."""
        return f"spark://127.0.0.1:{self._port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start the cluster; end all of its processes, executors too, when the block ends."""
        self._folder.mkdir(parents=True)
        try:
            self._start("master", _MASTER, "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
            self._wait_for("master", "I have been elected leader")
            for number in range(_WORKERS):
                self.start_worker(number)
            yield
        finally:
            for process in self._processes.values():
                kill_tree(process.pid)
                process.wait()

    def start_worker(self, number: int) -> None:
        """Start a worker, also again after it was killed."""
        name = f"worker{number}"
        work = self._folder / name
        self._start(
            name,
            _WORKER,
            *("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"),
            *("--work-dir", str(work), self.master),
            is_elsewhere=self._is_elsewhere,
        )
        self._wait_for(name, "Successfully registered with master")

    def kill_executor(self) -> bool:
        """Kill -9 a worker that has an executor, with the executor and its Python processes. False where none has."""
        return self._kill_one(lambda process: any(_EXECUTOR in word for word in process.cmdline()))

    def kill_reader(self, port: int) -> bool:
        """Kill -9 a worker that has an executor connected to a port of this machine. False where none has."""
        return self._kill_one(lambda process: is_connected(process, port))

    def _kill_one(self, holds: Callable[[psutil.Process], bool]) -> bool:
        name = self._find(holds)
        if name is None:
            return False
        process = self._processes.pop(name)
        kill_tree(process.pid)
        process.wait()
        return True

    def _find(self, holds: Callable[[psutil.Process], bool]) -> str | None:
        """Return the first worker of which a process fulfils a condition."""
        for name, worker in self._processes.items():
            for process in _descendants(worker.pid) if name != "master" else ():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if holds(process):
                        return name
        return None

    def _start(self, name: str, role: str, *arguments: str, is_elsewhere: bool = False) -> None:
        environment = self._environment()
        prefix, environment = hidden(self._folder / f"{name}-files", environment) if is_elsewhere else ([], environment)
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*prefix, *node_command(environment, [role, *arguments])],
                env=environment,
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        own = {
            "PATH": os.defpath,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": FRUGAL_JAVA,
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "TMPDIR": str(self._folder),
        }
        return own | node_environment()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _wait_for(self, name: str, text: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while text not in self._log(name).read_text(errors="replace"):
            assert self._processes[name].poll() is None, self._log(name).read_text(errors="replace")
            assert time.monotonic() < deadline, self._log(name).read_text(errors="replace")
            time.sleep(0.2)


def _descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def is_connected(process: psutil.Process, port: int) -> bool:
    """Return whether a process has a connection to a port. False where it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(each.raddr and each.raddr.port == port for each in process.net_connections())
    return False


def kill_tree(pid: int) -> None:
    """Kill -9 a process and all that it has started."""
    for process in _descendants(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()
