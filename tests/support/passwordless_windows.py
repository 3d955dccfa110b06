"""Windows of a pipeline whose source is logged in to without a password: the commands in the process of the test, and
their loads without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from cdc_database import CdcDatabase
from embedded_postgres import EmbeddedPostgres
from floodmark.cli.main import app
from floodmark.cli.process import out
from floodmark.core.settings import SOURCE_VARIABLE
from floodmark.postgres.session import WarehouseConnection
from floodmark.spark import job
from load_without_spark import no_session, stager

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
"""


@contextmanager
def warehouse_of_its_own(postgres: EmbeddedPostgres) -> Iterator[WarehouseConnection]:
    """Make an empty database; dropped afterwards."""
    name = "passwordless_warehouse"
    with psycopg.connect(postgres.conninfo(), autocommit=True) as session:
        session.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        session.execute(f"CREATE DATABASE {name}")
        yield WarehouseConnection(str(postgres.socket_dir), 5432, name, "postgres")
        session.execute(f"DROP DATABASE {name} WITH (FORCE)")


@dataclass
class Windows:
    """The pipeline ``shop`` of the table dbo.Orders (Id, Amount). patch: sets its environment."""

    database: CdcDatabase
    warehouse: WarehouseConnection
    patch: pytest.MonkeyPatch
    carried: list[str] = field(default_factory=list)
    """The source's connection of each load, as JSON."""

    def configure(self, folder: Path, source: Mapping[str, Any]) -> None:
        """Write the configuration into a folder. source: the fields of its Airflow connection."""
        target = {"conn_type": "postgres", "host": self.warehouse.host, "port": self.warehouse.port}
        target |= {"schema": self.warehouse.database, "login": self.warehouse.user, "password": "unused-unused"}
        path = folder / "pipelines.yaml"
        path.write_text(CONFIG, encoding="utf-8")
        for name, value in {
            "FLOODMARK_CONFIG": str(path),
            "FLOODMARK_DATA_DOCS": str(folder / "docs"),
            "AIRFLOW_CONN_SHOP_MSSQL": json.dumps(source),
            "AIRFLOW_CONN_WAREHOUSE": json.dumps(target),
        }.items():
            self.patch.setenv(name, value)
        self.patch.setattr("floodmark.cli.runs.run_load", self._run_load)
        self.patch.setattr(out, "width", 200)

    def _run_load(self, secrets: Mapping[str, str], *arguments: Any) -> None:
        self.carried.append(secrets[SOURCE_VARIABLE])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "SparkStager", stager)
            for name, value in secrets.items():
                patch.setenv(name, value)
            job.run_load_job(arguments[1], no_session())

    def call(self, *arguments: str, statuses: tuple[int, ...] = (0,)) -> str:
        """Run a command. Returns its output as one line."""
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code in statuses, done.output
        return " ".join(done.output.split())

    def run_both(self) -> str:
        """Run doctor, a first load, a comparison and a window, and check the rows. Returns the output of all."""
        self.database.run("INSERT dbo.Orders VALUES (1, 10), (2, 20)")
        self.database.scan()
        outputs = [self.call("doctor", "shop", "--all", statuses=(0, 4)), self.call("run", "shop")]
        outputs.append(self.call("verify", "shop"))
        self.database.run("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
        self.database.scan()
        outputs.append(self.call("run", "shop"))
        with psycopg.connect(self.warehouse.conninfo()) as session:
            assert session.execute('SELECT "Id", "Amount" FROM shop.orders ORDER BY 1').fetchall() == [(1, 11), (2, 20)]
        assert len(self.carried) == 2
        return "\n".join(outputs)
