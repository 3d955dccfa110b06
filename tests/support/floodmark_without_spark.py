"""The command ``floodmark``, whose load is a process of its own without Spark. All else is what a person runs."""

from __future__ import annotations

import sys
from pathlib import Path

import load_without_spark
from floodmark.cli.main import main
from floodmark.spark.launch import command
from floodmark.spark.launch.target import SparkTarget


def load_command(_target: SparkTarget, window_id: int, config: Path) -> list[str]:
    """Return the command line of the load, in place of that of spark-submit."""
    return [sys.executable, load_without_spark.__file__, *command.job_arguments(window_id, config)]


if __name__ == "__main__":
    vars(command).update(submit_command=load_command)
    main()
