"""``python -m floodmark.spark.launch.standalone CLASS ARGUMENT…``: a process of Spark's standalone cluster.

The master and the workers of a container that has this package run on the same Spark and Java as the driver.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from floodmark.spark.launch.target import java_environment


def node_environment() -> dict[str, str]:
    """Return the variables that Spark's scripts need: Spark's folder and a Java. Raises ModuleNotFoundError."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pyspark is not installed")
    return {"SPARK_HOME": str(Path(spec.origin).parent)} | java_environment()


def node_command(environment: dict[str, str], arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a class of Spark. environment: from ``node_environment``."""
    return [str(Path(environment["SPARK_HOME"], "bin", "spark-class")), *arguments]


def main() -> None:
    """Become the process."""
    environment = node_environment()
    command = node_command(environment, sys.argv[1:])
    os.execve(command[0], command, os.environ | environment)  # noqa: S606  (no shell, and Spark's own script)


if __name__ == "__main__":
    main()
