"""The DAGs, built from the configuration. Heavy imports are avoided: Airflow parses DAG files again and again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.orchestration.dags.pipelines import build_dags, build_load_dags
from floodmark.orchestration.dags.upkeep import (
    build_capture_dags,
    build_drift_dags,
    build_lake_dags,
    build_retention_dags,
    build_switch_dags,
)
from floodmark.orchestration.tasks import app_of

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from floodmark.config.models import Config

_BUILDERS = (
    build_dags,
    build_capture_dags,
    build_drift_dags,
    build_lake_dags,
    build_load_dags,
    build_retention_dags,
    build_switch_dags,
)


def build_every_dag(config: Config, config_path: Path) -> dict[str, DAG]:
    """Return all DAGs of the configuration, by id; in the process of a task, that of the task."""
    app = app_of(config)
    return {name: dag for build in _BUILDERS for name, dag in build(app, config_path).items()}
