"""The load job as a command: its arguments, its environment and its last word. For the operator and the CLI.

Imports neither Airflow nor Spark. Secrets go into the environment of the driver only: a command line, a template and a
log can be read by others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from floodmark.core.errors import FloodmarkBugError, LoadKilledError
from floodmark.core.load_result import LoadResult, parse_load_result
from floodmark.orchestration.temporary_files import (
    explain_ending,
    find_complaint,
    find_trouble,
    java_options,
    temporary_folders,
)
from floodmark.spark.java import java_environment
from floodmark.sqlfiles import home

DEFAULT_MASTER = "local[*]"
SOURCE_VARIABLE = "FLOODMARK_SOURCE"
WAREHOUSE_VARIABLE = "FLOODMARK_WAREHOUSE"
_LOCAL_SETTINGS = {
    # One job at a time on this machine: nobody looks at the UI, and nothing needs to listen beyond loopback.
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Driver and executor are one short-lived JVM beside Python's processes on few cores: the collector and the compiler
    # that cost least. A heap that grows only for what lives does not
    # follow the size of the window.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    " -Xms128m -XX:NewSize=32m -XX:MaxNewSize=32m",
}
# Spark's own INFO is hundreds of lines for every load; what a person wants to know is said by the job.
_SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN"}


def application() -> Path:
    """The job's file."""
    return home() / "spark_jobs" / "load_window.py"


def job_arguments(window_id: int | str, config: Path) -> list[str]:
    return ["--window-id", str(window_id), "--config", str(config)]


def job_settings(master: str) -> dict[str, str]:
    """Spark's configuration for the job. What a connection or a cluster sets itself is not touched."""
    return _SETTINGS | (_LOCAL_SETTINGS if _is_local(master) else {})


def job_environment(source: str, warehouse: str, master: str) -> dict[str, str]:
    """What the driver gets beside the present environment. source, warehouse: the connections as JSON, with secrets."""
    python = sys.executable
    environment = {
        SOURCE_VARIABLE: source,
        WAREHOUSE_VARIABLE: warehouse,
        "FLOODMARK_HOME": str(home()),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", python),
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", python),
        # spark-submit stands beside the interpreter, which need not be on the PATH.
        "PATH": os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath))),
    }
    spark_home = os.environ.get("SPARK_HOME") or _installed_spark()
    if spark_home:
        # Left to itself, spark-submit looks for it with an unquoted path to Python, which must not hold a blank.
        environment["SPARK_HOME"] = spark_home
    if _is_local(master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    options = java_options(os.environ)
    if options is not None:
        environment["SPARK_SUBMIT_OPTS"] = options
    return environment | java_environment()


def _installed_spark() -> str | None:
    """Of the package pyspark, without importing it."""
    spec = find_spec("pyspark")
    return str(Path(spec.origin).parent) if spec and spec.origin else None


def _is_local(master: str) -> bool:
    return master.startswith("local")


def submit_command(settings: Mapping[str, str], master: str, window_id: int, config: Path) -> list[str]:
    """For who starts the job without Airflow."""
    confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return ["spark-submit", "--master", master, *confs, str(application()), *job_arguments(window_id, config)]


class JobOutput:
    """Hands on the job's lines and keeps the result among them, and the first that tells of a full disk or the like."""

    def __init__(self) -> None:
        self.result: LoadResult | None = None
        self._complaint: str | None = None

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        """All lines but the result, which is for programs."""
        for line in lines:
            found = parse_load_result(line.strip())
            if found is None:
                self._complaint = self._complaint or find_complaint(line)
                yield line
            else:
                self.result = found

    def require_result(self, window_id: int, exit_status: str) -> LoadResult:
        """Raises the error that the job reported, or LoadKilledError when it reported nothing."""
        if self.result is None:
            why, do = self._explain()
            raise LoadKilledError(
                f"window {window_id}",
                f"the load ended without a result ({exit_status}). {why}".rstrip(),
                f"{do} Nothing is half-written; the next try does the same window.".lstrip(),
                self._complaint or "",
            )
        error = self.result.error
        if isinstance(error, FloodmarkBugError):
            # Of Spark, maybe, in words of its own.
            hint = " ".join(filter(None, (error.hint, *self._explain())))
            raise type(error)(error.subject, error.message, hint, error.detail)
        if error is not None:
            raise error
        return self.result

    def _explain(self) -> tuple[str, str]:
        return explain_ending(self._complaint, find_trouble(temporary_folders(os.environ)))
