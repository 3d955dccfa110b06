"""The command ``floodmark`` as a person starts it: what it finds in its environment, and how it is killed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from embedded_postgres import EmbeddedPostgres
from emulator_process import Emulator

FLOODMARK = str(Path(sys.executable).with_name("floodmark"))


def command_environment(source: Emulator, database: str, warehouse: EmbeddedPostgres, config: Path) -> dict[str, str]:
    """For a configuration whose connections are ``shop_mssql`` and ``warehouse``."""
    mssql = {
        "conn_type": "mssql",
        "host": source.host,
        "port": source.port,
        "login": source.user,
        "password": source.password,
        "schema": database,
        "extra": {"ca_file": str(source.ca_file)},
    }
    return {"AIRFLOW_CONN_SHOP_MSSQL": json.dumps(mssql), **warehouse_environment(warehouse, config)}


def warehouse_environment(warehouse: EmbeddedPostgres, config: Path) -> dict[str, str]:
    """For a configuration whose only connection is ``warehouse``. Data docs are put next to it."""
    postgres = {
        "conn_type": "postgres",
        "host": str(warehouse.socket_dir),
        "port": 5432,
        "login": "postgres",
        "password": "unused",
        "schema": "postgres",
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("FLOODMARK")} | {
        "AIRFLOW_CONN_WAREHOUSE": json.dumps(postgres),
        "FLOODMARK_CONFIG": str(config),
        "FLOODMARK_DATA_DOCS": str(config.with_name("docs")),
        "COLUMNS": "200",
    }
