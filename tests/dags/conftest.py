"""Fixtures of several files: DAG files in a process of their own, and all DAGs of a module's ``CONFIG`` in this one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.sdk import DAG
from dag_process import DagProcess

from alert_receivers import Posts, http_receiver
from floodmark.config.loading import load_config
from floodmark.orchestration.dags import build_every_dag


@pytest.fixture
def dag_process(tmp_path: Path) -> DagProcess:
    """Return a runner of DAG files, which Airflow parses in a process of their own."""
    return DagProcess(tmp_path)


@pytest.fixture
def config_file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Write the configuration ``CONFIG`` of the test's module, and return its file."""
    path = tmp_path / "pipelines.yaml"
    path.write_text(request.module.CONFIG, encoding="utf-8")
    return path


@pytest.fixture
def dags(config_file: Path) -> dict[str, DAG]:
    """Return all DAGs of the configuration, by their ids."""
    return build_every_dag(load_config(config_file), config_file)


@pytest.fixture
def posts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Posts]:
    """The channel ``chat`` of the configuration; its warehouse is away."""
    away = {"conn_type": "postgres", "host": "127.0.0.1", "port": 1, "login": "u", "password": "p-p-p-p", "schema": "w"}
    with http_receiver() as receiver:
        chat = {"conn_type": "http", "password": f"http://127.0.0.1:{receiver.port}/services/T0/B0"}
        monkeypatch.setenv("AIRFLOW_CONN_CHAT", json.dumps(chat))
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(away))
        yield receiver
