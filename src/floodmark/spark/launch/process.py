"""The load job of a window as a process of this one, where Airflow does not start it: for the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from floodmark.core.job_variables import PROGRESS_VARIABLE
from floodmark.core.status.read_progress import StepProgress
from floodmark.spark.launch import command as load_job
from floodmark.spark.launch.output import JobOutput, start_failure
from floodmark.spark.launch.parent_death import end_with_starter
from floodmark.spark.launch.target import SparkTarget
from floodmark.sync.ports.progress import Progress


def run_load(
    secrets: Mapping[str, str],
    target: SparkTarget,
    window_id: int,
    config_path: Path,
    progress: Progress | None = None,
) -> None:
    """Run the load job of a window, its output on standard error, until it has ended; it ends with this process.

    secrets: connections as JSON, by their variables. progress: receives the progress, which otherwise is in the
    output. Raises what the job reported.
    """
    environment = os.environ | load_job.job_environment(secrets, target)
    if progress is not None:
        environment[PROGRESS_VARIABLE] = "1"
        progress.report_step(StepProgress(f"window {window_id}: starting Spark"))
    command = load_job.submit_command(target, window_id, config_path)
    output = JobOutput(progress)
    try:
        started = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=end_with_starter(),  # noqa: PLW1509  (a bare system call, resolved before)
        )
    except OSError as problem:
        raise start_failure(window_id, problem) from None
    with started as job:
        for line in output.watch(job.stdout or ()):
            sys.stderr.write(line)
    output.require_result(window_id, job.returncode)
