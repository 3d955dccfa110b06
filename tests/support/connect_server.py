"""A Spark Connect server as ``floodmark spark-server`` starts it, on a free port of loopback."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from command_line import FLOODMARK
from floodmark.spark.launch.command import job_environment, job_settings
from floodmark.spark.launch.target import SparkTarget
from floodmark_laptop.processes import free_port
from spark_cluster import FRUGAL_JAVA, is_connected, kill_tree

_READY_SECONDS = 120
_TARGET = SparkTarget("local[2]")
_MASTER = ("--master", _TARGET.master)
_JAVA = f"spark.driver.extraJavaOptions={FRUGAL_JAVA}"
_OWN = ("FLOODMARK_", "AIRFLOW_CONN_")


class ConnectServer:
    """A server with two cores. Its environment has no connection of the caller.

    application: a program of this folder in place of Floodmark's own.
    """

    def __init__(self, log: Path, application: str = "", **environment: str) -> None:
        self.log = log
        self.port = free_port()
        self._application = application
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def connection(self, **fields: object) -> dict[str, str]:
        """Return the Spark connection, as Airflow's environment variable."""
        return {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": self.url, **fields})}

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[None]:
        """Run the server, with further arguments for its command, until the block ends."""
        self.start(*arguments)
        try:
            yield
        finally:
            self.kill()

    def start(self, *arguments: str) -> None:
        """Start the server, and wait until it is ready."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
        environment = inherited | self._environment
        command = [FLOODMARK, "spark-server", "--port", str(self.port), *_MASTER, "--conf", _JAVA, *arguments]
        if self._application:
            environment = inherited | job_environment({}, _TARGET) | self._environment
            command = ["spark-submit", *_MASTER, *self._plain_settings(), *arguments]
            command.append(str(Path(__file__).with_name(self._application)))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _READY_SECONDS
        while f"Loads can connect to {self.url}" not in self.text():
            assert self._process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.1)

    def _plain_settings(self) -> list[str]:
        settings = job_settings(_TARGET) | {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
        }
        return as_options(settings)

    def kill(self) -> None:
        """Kill -9 the server and its Python processes."""
        if self._process is not None:
            kill_tree(self._process.pid)
            self._process.wait()

    def text(self) -> str:
        """Return all that the server has printed."""
        return self.log.read_text(errors="replace")

    def is_connected_to(self, port: int) -> bool:
        """Return whether a worker has a connection to a port of this machine."""
        return any(is_connected(each, port) for each in self._descendants())

    def daemons(self) -> list[psutil.Process]:
        """Return the processes from which Spark forks its workers."""
        daemons = [each for each in self._descendants() if _is_daemon(each)]
        return [each for each in daemons if each.ppid() not in {other.pid for other in daemons}]

    def _descendants(self) -> list[psutil.Process]:
        assert self._process is not None
        return psutil.Process(self._process.pid).children(recursive=True)


def as_options(settings: Mapping[str, str]) -> list[str]:
    """Return properties of Spark as options of its commands."""
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]


def _is_daemon(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return "floodmark.spark.daemon" in process.cmdline()
    return False
