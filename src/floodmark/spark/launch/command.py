"""The load job as a command: its arguments and its environment. For the operator and the CLI.

Imports neither Airflow nor Spark. Secrets go into the environment of the driver only: a command line, a template and a
log can be read by others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from floodmark import spark
from floodmark.spark.launch.java import java_environment
from floodmark.spark.launch.temporary_files import java_options

DEFAULT_MASTER = "local[*]"
_LOCAL_SETTINGS = {
    # One job at a time on this machine: no one opens the UI, and nothing needs to listen beyond loopback.
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Driver and executor are one short-lived JVM next to Python's processes on few cores: the collector and the
    # compiler that cost least. A heap that grows only for what lives does not follow the size of the window.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    " -Xms128m -XX:NewSize=32m -XX:MaxNewSize=32m",
}
# Spark's own INFO is hundreds of lines for every load; what a person wants to know is said by the job.
_SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN"}


def application() -> Path:
    """Return the file of the job: ``spark_jobs/load_window.py``, which the package carries."""
    return Path(spark.__file__).parent / "spark_jobs" / "load_window.py"


def job_arguments(window_id: int | str, config: Path) -> list[str]:
    return ["--window-id", str(window_id), "--config", str(config)]


def job_settings(master: str) -> dict[str, str]:
    """Spark's configuration for the job. What a connection or a cluster sets itself is not touched."""
    return _SETTINGS | (_LOCAL_SETTINGS if _is_local(master) else {})


def job_environment(secrets: Mapping[str, str], master: str) -> dict[str, str]:
    """Return what the driver gets besides the present environment. secrets: connections as JSON, by their variables."""
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
    if _is_local(master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    options = java_options(os.environ)
    if options is not None:
        environment["SPARK_SUBMIT_OPTS"] = options
    return environment | java_environment()


def _installed_spark() -> str | None:
    """Return the folder of the package pyspark, without importing it."""
    spec = find_spec("pyspark")
    return str(Path(spec.origin).parent) if spec and spec.origin else None


def _is_local(master: str) -> bool:
    return master.startswith("local")


def submit_command(settings: Mapping[str, str], master: str, window_id: int, config: Path) -> list[str]:
    """For who starts the job without Airflow."""
    confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return ["spark-submit", "--master", master, *confs, str(application()), *job_arguments(window_id, config)]
