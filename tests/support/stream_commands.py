"""The environment of the command ``floodmark`` for the stream of a rig, with all but Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from floodmark.cli.process import out
from floodmark.spark import job
from load_without_spark import no_session, stager
from stream_rig import StreamRig


def prepare_commands(rig: StreamRig, text: str, folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Return the file of a configuration, whose connections are ``shop``, ``hub`` and ``warehouse``."""
    path, database = folder / "pipelines.yaml", rig.warehouse
    path.write_text(text, encoding="utf-8")
    source = {"conn_type": "mssql", "host": rig.at.host, "port": rig.at.port, "schema": rig.at.database}
    extra = {"ca_file": rig.at.ca_file}
    warehouse = {"conn_type": "postgres", "host": database.host, "port": database.port, "schema": database.database}
    for name, value in {
        "FLOODMARK_CONFIG": str(path),
        "FLOODMARK_DATA_DOCS": str(folder / "docs"),
        "AIRFLOW_CONN_SHOP": json.dumps(source | {"login": rig.at.user, "password": rig.at.password, "extra": extra}),
        "AIRFLOW_CONN_WAREHOUSE": json.dumps(warehouse | {"login": database.user, "password": "s3cret-s3cret"}),
        "AIRFLOW_CONN_HUB": json.dumps({"conn_type": "fs", "extra": {"path": str(rig.capture.folder)}}),
    }.items():
        patch.setenv(name, value)
    patch.setattr("floodmark.cli.runs.run_load", _run_load)
    patch.setattr(out, "width", 200)
    return path


def _run_load(secrets: Mapping[str, str], _master: str | None, window_id: int, _path: Path, _progress: None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "SparkStager", stager)
        for name, value in secrets.items():
            patch.setenv(name, value)
        job.run_load_job(window_id, no_session())
