"""The packages that the wheel ships run where the repository is not in reach."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from emulator_process import running_emulator

EMULATOR = Path(__file__).parents[2]
PROJECT = tomllib.loads((EMULATOR / "pyproject.toml").read_text("utf-8"))
PACKAGES = [Path(each) for each in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]


def test_wheel_ships_every_package() -> None:
    assert sorted(PACKAGES) == sorted(each.relative_to(EMULATOR) for each in (EMULATOR / "src").iterdir())


def test_packages_run_in_another_folder(open_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    for package in PACKAGES:
        shutil.copytree(EMULATOR / package, site / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", "import sqlserver_emulator; print(sqlserver_emulator.__file__)"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).parent == site / "sqlserver_emulator"
    with (
        running_emulator(open_dir / "packaged", databases=("Shop",)) as emulator,
        contextlib.closing(emulator.connect_pymssql("Shop", autocommit=True)) as connection,
    ):
        cursor = connection.cursor()
        cursor.execute(
            "EXEC sys.sp_cdc_enable_db; SELECT DB_NAME(), is_cdc_enabled FROM sys.databases WHERE name = DB_NAME()"
        )
        assert cursor.fetchall() == [("Shop", True)]
