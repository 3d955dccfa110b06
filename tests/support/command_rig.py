"""The command ``floodmark`` in the process of a test: from a file to rows in the warehouse, with all but Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdc_database import CdcDatabase
from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.cli.process import out
from floodmark.postgres.session import WarehouseConnection, open_statements
from floodmark.spark import job
from load_without_spark import no_session, stager


@dataclass
class CommandRig:
    """A source, a warehouse and a file whose connections are ``shop_mssql`` and ``warehouse``."""

    source: CdcDatabase
    warehouse: WarehouseConnection
    file: Path

    def configure(self, text: str) -> None:
        self.file.write_text(text, encoding="utf-8")

    def try_call(self, *arguments: str) -> tuple[int, str]:
        """Return the exit status of a command and its output, on one line."""
        # A command has the process for itself: its handlers would write to the streams of the one before.
        logging.getLogger("floodmark").handlers.clear()
        result = CliRunner().invoke(app, list(arguments))
        return result.exit_code, " ".join(result.output.split())

    def call(self, *arguments: str) -> str:
        status, output = self.try_call(*arguments)
        assert status == 0, output
        return output

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with open_statements(self.warehouse) as session:
            cursor = session.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def alerts(self, kind: str) -> list[str]:
        """Return what the open alerts of a kind say."""
        rows = self.rows(f"SELECT what FROM floodmark.alerts WHERE ended_at IS NULL AND kind = '{kind}' ORDER BY what")
        return [what for (what,) in rows]


def command_rig(
    emulator: Emulator, source: CdcDatabase, warehouse: WarehouseConnection, folder: Path, patch: pytest.MonkeyPatch
) -> CommandRig:
    rig = CommandRig(source, warehouse, folder / "pipelines.yaml")
    mssql = {"conn_type": "mssql", "host": emulator.host, "port": emulator.port, "schema": source.name}
    mssql |= {"login": emulator.user, "password": emulator.password, "extra": {"ca_file": str(emulator.ca_file)}}
    postgres = {"conn_type": "postgres", "host": warehouse.host, "port": warehouse.port, "schema": warehouse.database}
    for name, value in {
        "FLOODMARK_CONFIG": str(rig.file),
        "FLOODMARK_DATA_DOCS": str(folder / "docs"),
        "AIRFLOW_CONN_WAREHOUSE": json.dumps(postgres | {"login": warehouse.user, "password": "s3cret-s3cret"}),
        "AIRFLOW_CONN_SHOP_MSSQL": json.dumps(mssql),
    }.items():
        patch.setenv(name, value)
    patch.setattr("floodmark.cli.runs.run_load", _run_load(patch))
    patch.setattr(out, "width", 200)
    return rig


def _run_load(patch: pytest.MonkeyPatch) -> Callable[..., None]:
    def run_load(secrets: Mapping[str, str], _master: str | None, window_id: int, _path: Path, _progress: None) -> None:
        with patch.context() as inner:
            inner.setattr(job, "SparkStager", stager)
            for name, value in secrets.items():
                inner.setenv(name, value)
            job.run_load_job(window_id, no_session())

    return run_load
