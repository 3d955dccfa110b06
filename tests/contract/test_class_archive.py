"""Java maps Spark's classes from the recorded archive. It would ignore one that does not fit, without a word."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from floodmark.spark.launch.command import application, job_environment, submit_command
from floodmark.spark.launch.processes import record_classes
from floodmark.spark.launch.target import SparkTarget

pytestmark = pytest.mark.timeout(300)

_TARGET = SparkTarget("local[2]")


def test_start_of_a_load_maps_most_of_its_classes(tmp_path: Path) -> None:
    record_classes(only_missing=True)
    log = tmp_path / "classes"
    environment = os.environ | job_environment({}, _TARGET) | {"JAVA_TOOL_OPTIONS": f"-Xlog:class+load:file={log}"}
    command = submit_command(_TARGET, 1, tmp_path)
    command[command.index(str(application())) :] = [str(application().with_name("record_classes.py"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    mapped = [line for line in lines if "source: shared objects file" in line]
    assert any("org.apache.spark.deploy.SparkSubmit " in line for line in mapped)
    assert len(mapped) > 0.5 * len(lines)
