"""The pytest plugin for other projects, used as they would use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = 'pytest_plugins = ["sqlserver_emulator.testing"]\n'
TEST = """
import pymssql

def test_the_fixture_connects(sqlserver_emulator):
    emulator = sqlserver_emulator
    with pymssql.connect(server=emulator.host, port=str(emulator.port), user=emulator.user,
                         password=emulator.password, database="Test") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT DB_NAME()")
        assert cursor.fetchone() == ("Test",)
"""


def test_another_project_gets_the_fixture_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, "utf-8")
    (tmp_path / "test_it.py").write_text(TEST, "utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
