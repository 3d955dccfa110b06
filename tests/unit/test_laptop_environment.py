"""The environment that ``make up`` leaves for a shell."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest

from floodmark_laptop.airflow import Airflow
from floodmark_laptop.processes import MARK


def test_a_shell_that_reads_the_environment_of_make_up_finds_the_same_connections(tmp_path: Path) -> None:
    connection = json.dumps({"conn_type": "postgres", "password": 'it\'s "quoted" & $odd'})
    airflow = Airflow(tmp_path, tmp_path, 8080, "postgresql://", {"warehouse": connection}, {"SOME_SAMPLE": "/a b"})
    assert MARK in airflow.environment()
    file = tmp_path / "environment"
    airflow.write_environment(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    command = f'. {file}; printf "%s\\n" "$AIRFLOW_CONN_WAREHOUSE" "$SOME_SAMPLE" "$AIRFLOW__API__PORT" "${MARK}."'
    read = subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True, text=True, env={})
    assert read.stdout.splitlines() == [connection, "/a b", "8080", "."]


def test_laptop_sends_no_lineage_to_the_catalog_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://catalog.test")
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", '{"type": "console"}')
    environment = Airflow(tmp_path, tmp_path, 8080, "postgresql://", {}).environment()
    assert not [name for name in environment if "OPENLINEAGE" in name]
