"""The command ``floodmark``, whose loads run without Spark and whose checks find nothing: seconds instead of half a
minute, so that it can be killed often."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from floodmark.cli import main as cli
from floodmark.spark.launch import command as load_job
from floodmark.spark.launch.target import SparkTarget
from floodmark.wiring.pipelines import PipelineWiring

_LOAD = str(Path(__file__).with_name("load_without_spark.py"))


def command(_target: SparkTarget, window_id: int, config: Path) -> list[str]:
    return [sys.executable, _LOAD, *load_job.job_arguments(window_id, config)]


def no_quality(_wiring: PipelineWiring) -> Any:
    return SimpleNamespace(check_window=lambda _plan, _counts: {})


if __name__ == "__main__":
    load_job.submit_command, PipelineWiring.quality = command, no_quality  # type: ignore[assignment,method-assign]
    cli.main()
