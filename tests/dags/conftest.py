"""DAG files are parsed in a process of their own, as Airflow does."""

from __future__ import annotations

from pathlib import Path

import pytest
from dag_process import DagProcess


@pytest.fixture
def dag_process(tmp_path: Path) -> DagProcess:
    return DagProcess(tmp_path)
