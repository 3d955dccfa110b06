"""The engine of a load: an open Spark, in this process's Java or behind a Spark Connect server.

It opens in a thread of its own, and only for a load that needs it: few changes are staged without it, and a load that
another one keeps from its window has no use for it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from subprocess import TimeoutExpired
from traceback import walk_tb
from types import FrameType
from typing import IO, Protocol

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from floodmark.core.errors import LoadStartError
from floodmark.core.planning import STARTED, STARTING
from floodmark.spark.launch.command import WORKER_DAEMON
from floodmark.spark.launch.target import java_environment
from floodmark.spark.stage import killed

_LOG = logging.getLogger(__name__)
_STOP_SECONDS = 3
"""The time that a server has to interrupt a load. Airflow's operator waits two seconds longer."""
_HELD_SECONDS = 1
"""The time for which the main thread is kept from going on."""


class Engine(Protocol):
    """An open Spark."""

    @property
    def session(self) -> SparkSession:
        """Its session."""

    @property
    def masters(self) -> Sequence[str]:
        """The URLs that say on which machines its executors are: of the master and, where there is one, the server."""

    def cores(self) -> int:
        """Return how many tasks run at a time."""

    def stop(self) -> None:
        """End the session and what still runs in it, for a process that then ends."""


def keep_errors_unprinted() -> None:
    """Keep PySpark from printing the errors that it raises: Spark's messages quote values of rows."""
    PySparkException._log_exception = _print_nothing


def _print_nothing(error: PySparkException) -> None:
    """Stand for the method of an error that prints it as JSON, with a logger that no configuration reaches."""


class OpeningEngine:
    """An engine that is opened when it is needed."""

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self.waited_seconds = 0.0
        """The time in which a call of ``get`` has waited for the engine."""
        self._open_engine = open_engine
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="spark")
        self._lock = threading.Lock()
        self._engine: Future[Engine] | None = None

    def get(self) -> Engine:
        """Open the engine unless that has begun, and return it when it is open. Raises the error of its start."""
        began = time.monotonic()
        with self._lock:
            if self._engine is None:
                self._engine = self._pool.submit(self._open_engine)
        try:
            return self._engine.result()
        finally:
            # Calls in several threads wait for one moment: the first of them has waited for the longest time.
            self.waited_seconds = max(self.waited_seconds, time.monotonic() - began)

    def stop(self) -> None:
        """Stop the engine, for a process that then ends. It may not have been opened."""
        self._pool.shutdown()
        if self._engine is not None and self._engine.exception() is None:
            self._engine.result().stop()


def stop_on_termination(opening: OpeningEngine) -> None:
    """Let SIGTERM end this process, after a request to the server to interrupt the load. For the main thread."""

    def stop_and_end(signal_number: int) -> None:
        stopping = threading.Thread(target=opening.stop, daemon=True)
        stopping.start()
        stopping.join(_STOP_SECONDS)
        os._exit(128 + signal_number)

    def end(signal_number: int, _: FrameType | None) -> None:
        ending = threading.Thread(target=stop_and_end, args=[signal_number], daemon=True)
        ending.start()
        # The main thread would report the end of its load as an error. It may hold a lock that the request needs.
        ending.join(_HELD_SECONDS)

    signal.signal(signal.SIGTERM, end)


# --------------------------------------------------------------------------------------------------------------------
# The Spark session of a load in a Java of its own: that of spark-submit, or of this process.


SESSION_SETTINGS = {
    # Columns of a case-sensitive source may differ in case alone.
    "spark.sql.caseSensitive": "true",
    # Moments are microseconds of UTC; the machine's time zone must not change them.
    "spark.sql.session.timeZone": "UTC",
    # One record is a whole batch of rows (see packing).
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
    # Many parts, coalesced to this size: the memory of a task does not depend on the size of the window.
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
}
_REPEATED = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
"""Loggers that print the stack trace of a failed task. The driver gets it as an exception and logs one message."""
_GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""The variable that spark-submit sets, whose Java runs already."""
_ENDING_SECONDS = 2
"""The time that a Java may take to end after its last answer."""


@dataclass(frozen=True)
class ClassicEngine:
    """``Engine`` in a Java of its own."""

    session: SparkSession

    @property
    def masters(self) -> Sequence[str]:
        return (str(self.session.sparkContext.master),)

    def cores(self) -> int:
        return int(self.session.sparkContext.defaultParallelism)

    def stop(self) -> None:
        # Java may have been killed. The stop of Python's part waits a second for a thread that ends with the process.
        with suppress(Py4JError):
            self.session.sparkContext._jsc.stop()


def open_job_engine() -> ClassicEngine:
    """Return the engine of a load job. Lines on standard output say to its starter that Spark starts, and is up."""
    if _GATEWAY_VARIABLE in os.environ:
        return open_classic_engine()
    sys.stdout.write(f"{STARTING}\n")
    sys.stdout.flush()
    engine = open_classic_engine()
    sys.stdout.write(f"{STARTED}\n")
    sys.stdout.flush()
    return engine


def open_classic_engine(
    settings: Mapping[str, str] | None = None, java_output: IO[bytes] | None = None
) -> ClassicEngine:
    """Return the engine of spark-submit with Floodmark's settings; without spark-submit, with a Java that this process
    starts: by the options in PYSPARK_SUBMIT_ARGS, or a local one on all cores.

    Raises LoadStartError where that Java does not start, LoadKilledError where a signal ended it.

    settings: more properties, where there is no spark-submit. They are on the command line of Java. java_output: the
    file to which a Java that is started writes what is no result; None for that of this process.
    """
    began = time.monotonic()
    keep_errors_unprinted()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _GATEWAY_VARIABLE not in os.environ:
        os.environ.update(java_environment())
    properties = WORKER_DAEMON | SESSION_SETTINGS | dict(settings or {})
    conf = SparkConf().setAll(list(properties.items()))
    if SparkContext._gateway is None:
        output = {} if java_output is None else {"stdout": java_output, "stderr": java_output}
        try:
            gateway = launch_gateway(conf, output)
        except (PySparkRuntimeError, OSError) as error:
            if _was_killed(error):
                raise killed() from None
            raise LoadStartError("Spark", "its Java did not start.", "Its output says why.", str(error)) from None
        SparkContext(conf=conf, gateway=gateway)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    silence(session, _REPEATED)
    java = session.sparkContext._jvm.java.lang.System
    _LOG.info(
        "Spark %s on %s is up after %.1f s. Its Java is %s in %s.",
        session.version,
        session.sparkContext.master,
        time.monotonic() - began,
        java.getProperty("java.version"),
        java.getProperty("java.home"),
    )
    return ClassicEngine(session)


def _was_killed(error: Exception) -> bool:
    """Return whether a signal ended the Java whose start has failed. ``launch_gateway`` keeps the process to itself."""
    frames = (frame.f_locals.get("proc") for frame, _ in walk_tb(error.__traceback__))
    return any(java is not None and (java.returncode or 0) < 0 for java in frames)


def has_lost_java() -> bool:
    """Return whether the Java that this process has started has ended."""
    java = getattr(SparkContext._gateway, "proc", None)
    try:
        return java is not None and java.wait(_ENDING_SECONDS) is not None
    except TimeoutExpired:
        return False


def silence(session: SparkSession, loggers: Sequence[str]) -> None:
    """Let loggers of Java print nothing."""
    jvm = session.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    for name in loggers:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
