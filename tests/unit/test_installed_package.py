"""Floodmark outside of its clone: the package carries its SQL, its job and its styles."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "floodmark"
CODE = """
import sys
sys.path.insert(0, {folder!r})
import floodmark
from floodmark.postgres.sql import read_sql
from floodmark.quality import great_expectations as data_docs
from floodmark.sources.sqlserver import tables as sql_files
from floodmark.spark.launch.command import application
from floodmark.spark.launch.target import _JAVA_HOME
from floodmark.app.pipeline import config_path

assert floodmark.__file__.startswith({folder!r}), floodmark.__file__
assert "floodmark.windows" in read_sql("ensure_schema")
assert "cdc" in sql_files.read_sql("read_snapshot")
assert application().is_file() and (_JAVA_HOME / "bin" / "java").is_file(), application()
assert (data_docs._STYLES / "custom_data_docs").is_dir()
print(config_path())
"""


def test_installed_package_needs_no_clone(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    # As a wheel has it: what is a link in the clone is a file there.
    shutil.copytree(PACKAGE, folder / "floodmark", ignore=shutil.ignore_patterns("__pycache__"))
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(folder=str(folder))],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Of the working directory, as there is no clone.
    assert done.stdout.strip() == str(tmp_path / "include" / "pipelines.yaml")
