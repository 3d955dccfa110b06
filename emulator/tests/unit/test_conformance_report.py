"""The report of differences, written by a run of pytest on two tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parents[1] / "support"
CONFTEST = "from conformance_report import pytest_assertrepr_compare, pytest_runtest_makereport, pytest_sessionfinish\n"
SUITE = """
def test_it_agrees():
    assert 313 == 313

def test_the_number_of_the_error_is_313():
    assert 208 == 313

def test_it_breaks():
    raise ValueError("the connection was lost")
"""


def test_differences_are_written_with_what_was_said_and_what_was_expected(tmp_path: Path) -> None:
    suite, report = tmp_path / "conformance", tmp_path / "report.md"
    suite.mkdir()
    (suite / "conftest.py").write_text(CONFTEST, "utf-8")
    (suite / "test_suite.py").write_text(SUITE, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "FLOODMARK_CONFORMANCE_REPORT": str(report)}
    environment.pop("FLOODMARK_TEST_MSSQL", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(suite)]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    text = report.read_text("utf-8")
    assert "1 tests agree, 2 differ, 0 do not apply." in text
    assert "## test_suite.py::test_the_number_of_the_error_is_313" in text
    assert "* the suite expects: `313`\n* the server says: `208`" in text
    assert "* ValueError: the connection was lost" in text
