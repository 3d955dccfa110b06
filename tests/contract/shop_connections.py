"""Airflow's connections ``shop_mssql`` and ``warehouse``, as its environment has them."""

from __future__ import annotations

import json

import pytest

from emulator_process import Emulator
from floodmark.postgres.session import WarehouseConnection


def set_connections(
    monkeypatch: pytest.MonkeyPatch,
    emulator: Emulator,
    database: str,
    warehouse: WarehouseConnection,
    warehouse_password: str = "",
) -> None:
    """database: of the source."""
    source = {
        "conn_type": "mssql",
        "host": emulator.host,
        "port": emulator.port,
        "login": emulator.user,
        "password": emulator.password,
        "schema": database,
        "extra": {"ca_file": str(emulator.ca_file)},
    }
    target = {
        "conn_type": "postgres",
        "host": warehouse.host,
        "port": warehouse.port,
        "login": warehouse.user,
        "password": warehouse_password,
        "schema": warehouse.database,
    }
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(source))
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(target))
