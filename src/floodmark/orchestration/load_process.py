"""The load job of a window as a process of this one, where Airflow does not start it: for the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.orchestration import load_job
from floodmark.orchestration.job_output import JobOutput, start_failure
from floodmark.spark.parent_death import end_with_starter
from floodmark.wiring import spark_master

if TYPE_CHECKING:
    from floodmark.wiring import Wiring


def run_load(wiring: Wiring, window_id: int, config_path: Path) -> None:
    """Until the job has ended, its output on standard error; it ends with this process. Raises what it reported."""
    master = spark_master() or load_job.DEFAULT_MASTER
    environment = os.environ | load_job.job_environment(*wiring.job_secrets(), master)
    command = load_job.submit_command(load_job.job_settings(master), master, window_id, config_path)
    output = JobOutput()
    try:
        started = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            preexec_fn=end_with_starter(),  # noqa: PLW1509  (a bare system call, looked up before)
        )  # fmt: skip
    except OSError as problem:
        raise start_failure(window_id, problem) from None
    with started as job:
        for line in output.watch(job.stdout or ()):
            sys.stderr.write(line)
    output.require_result(window_id, job.returncode)
