"""The load job as a command: its arguments and its environment. For the operator and the CLI.

With a Spark Connect server the command is Python with the job; otherwise it is spark-submit.

Imports neither Airflow nor Spark. Secrets go into the environment of the driver only: a command line, a template and a
log can be read by others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from floodmark import spark
from floodmark.core.errors import ConfigError
from floodmark.core.job_variables import REMOTE_VARIABLE
from floodmark.spark.launch.java import java_environment
from floodmark.spark.launch.target import SparkTarget
from floodmark.spark.launch.temporary_files import java_options

_LOOPBACK_SETTINGS = {
    # Nothing needs to listen beyond loopback.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
JAVA_SETTING = "spark.driver.extraJavaOptions"
LOCAL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms128m -XX:NewSize=32m -XX:MaxNewSize=32m"
"""The options of a local job's Java.

Driver and executor are one short-lived JVM next to Python's processes on few cores: the collector and the compiler that
cost least. A heap that grows only for what lives does not follow the size of the window.
"""
_LOCAL_SETTINGS = {
    # One job at a time on this machine: no one opens the UI.
    "spark.ui.enabled": "false",
    JAVA_SETTING: LOCAL_JAVA,
}
_CLUSTER_SETTINGS = {
    # A task that fails for its data or its rights fails again: a second try is for lost machines.
    "spark.task.maxFailures": "2",
    # Two copies of a task read the source twice.
    "spark.speculation": "false",
    # The memory of Python and Arrow is outside Java's heap; a container without room for it is killed.
    "spark.executor.memoryOverhead": "1g",
}
WORKER_DAEMON = {"spark.python.daemon.module": "floodmark.spark.daemon"}
"""A setting of Spark's start, which no session can change."""
_PYTHON, _DRIVER_PYTHON = "spark.pyspark.python", "spark.pyspark.driver.python"
_CLIENT_MODULES = ("grpc", "grpc_status", "pandas", "zstandard")
# Spark's own INFO is hundreds of lines for every load; what a person wants to know is said by the job.
_SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN"}


def application() -> Path:
    """Return the file of the job: ``spark_jobs/load_window.py``, which the package carries."""
    return Path(spark.__file__).parent / "spark_jobs" / "load_window.py"


def job_arguments(window_id: int | str, config: Path) -> list[str]:
    return ["--window-id", str(window_id), "--config", str(config)]


def job_settings(target: SparkTarget) -> dict[str, str]:
    """Return Spark's properties for the job. Those of the Spark connection win."""
    settings = _SETTINGS | (_LOCAL_SETTINGS if target.is_local else _CLUSTER_SETTINGS)
    if target.is_loopback:
        settings |= _LOOPBACK_SETTINGS
    if _PYTHON in target.conf:
        # Otherwise the driver would use the executors' Python, too.
        settings[_DRIVER_PYTHON] = sys.executable
    return settings | dict(target.conf)


def job_environment(secrets: Mapping[str, str], target: SparkTarget) -> dict[str, str]:
    """Return what the driver gets besides the present environment. secrets: connections as JSON, by their variables."""
    if target.server:
        return {**secrets, REMOTE_VARIABLE: target.server}
    python = sys.executable
    environment = {
        **secrets,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", python),
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", python),
        # spark-submit is next to the interpreter, which need not be on the PATH.
        "PATH": os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath))),
    }
    spark_home = os.environ.get("SPARK_HOME") or _installed_spark()
    if spark_home:
        # By default, spark-submit searches for it with an unquoted path to Python, which must not hold a blank.
        environment["SPARK_HOME"] = spark_home
    if target.is_loopback:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    options = java_options(os.environ)
    if options is not None:
        environment["SPARK_SUBMIT_OPTS"] = options
    return environment | java_environment()


def client_command(target: SparkTarget, arguments: Sequence[str]) -> list[str]:
    """Return the command line of a job whose Spark is a server's. Raises ConfigError where its client is missing."""
    missing = [name for name in _CLIENT_MODULES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            target.master, f"a client of Spark Connect needs {', '.join(missing)}.", "Install floodmark[connect]."
        )
    return [sys.executable, str(application()), *arguments]


def _installed_spark() -> str | None:
    """Return the folder of the package pyspark, without importing it."""
    spec = find_spec("pyspark")
    return str(Path(spec.origin).parent) if spec and spec.origin else None


def submit_command(target: SparkTarget, window_id: int, config: Path) -> list[str]:
    """Return the command line for a caller that starts the job without Airflow. Raises ConfigError."""
    if target.server:
        return client_command(target, job_arguments(window_id, config))
    confs = [part for name, value in job_settings(target).items() for part in ("--conf", f"{name}={value}")]
    named = ["--name", f"floodmark window {window_id}"]
    arguments = job_arguments(window_id, config)
    return [target.binary, "--master", target.master, *named, *confs, str(application()), *arguments]
