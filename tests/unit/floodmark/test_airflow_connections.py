"""Connections of the environment, which are read without Airflow where Airflow would read the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.sdk import Connection

from floodmark import airflow_connections
from floodmark.airflow_connections import EnvironmentConnection, find_connection, read_connection
from floodmark.core.errors import ConfigError

FIELDS = ("conn_type", "host", "port", "login", "password", "schema", "extra", "extra_dejson")
SHOP = {"conn_type": "mssql", "host": "db", "port": 1433, "login": "sa", "password": "p@ss:/?", "schema": "Shop"}
VARIABLE = "AIRFLOW_CONN_SHOP"


@pytest.fixture(autouse=True)
def without_airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has not imported Airflow's SDK, with settings that nobody has written."""
    for name in ("AIRFLOW_CONFIG", "AIRFLOW__SECRETS__BACKEND", VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "airflow.sdk", raising=False)
    airflow_connections.may_have_option.cache_clear()
    yield
    airflow_connections.may_have_option.cache_clear()


@pytest.mark.parametrize(
    "fields",
    [
        SHOP,
        {"conn_type": "postgresql", "host": "db"},
        {"conn_type": "google-cloud-platform", "port": "5432", "extra": '{"sslmode": "require"}'},
        {"conn_type": "fs", "extra": {"path": "/captures", "nested": {"a": [1]}}, "description": "of a test"},
        {"conn_type": "http", "password": None, "port": 0, "extra": {}},
        {"conn_type": "spark", "host": "spark://master", "extra": ""},
    ],
)
def test_connection_is_the_one_that_airflow_reads(monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]) -> None:
    monkeypatch.setenv(VARIABLE, f" {json.dumps(fields)}")
    found, expected = find_connection("shop"), Connection.from_json(json.dumps(fields), "shop")
    assert isinstance(found, EnvironmentConnection)
    assert [getattr(found, name) or None for name in FIELDS] == [getattr(expected, name) or None for name in FIELDS]


@pytest.mark.parametrize(
    "settings", ["[secrets]\nbackend = a.Backend\n", "[workers]\nsecrets_backend_cmd = print it\n", "[secrets\n"]
)
def test_airflow_reads_what_its_secrets_backend_may_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: str
) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps(SHOP))
    (tmp_path / "airflow.cfg").write_text(settings, encoding="utf-8")
    assert airflow_connections._of_environment("shop") is None


@pytest.mark.parametrize("name", ["AIRFLOW__SECRETS__BACKEND", "AIRFLOW__WORKERS__SECRETS_BACKEND_CMD"])
def test_backend_of_the_environment_counts_too(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps(SHOP))
    monkeypatch.setenv(name, "a.Backend")
    assert airflow_connections._of_environment("shop") is None


@pytest.mark.parametrize(
    "text",
    [
        "mssql://sa@db/Shop",
        '{"conn_type": "mssql"',
        '{"host": "db"}',
        '{"conn_type": 7}',
        '{"conn_type": "mssql", "port": "x"}',
        '{"conn_type": "mssql", "extra": "no JSON"}',
        '{"conn_type": "mssql", "extra": [1]}',
    ],
)
def test_airflow_reads_every_other_text(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert airflow_connections._of_environment("shop") is None


def test_password_is_in_no_text_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps(SHOP | {"extra": {"token": "t-secret"}}))
    assert "p@ss" not in repr(find_connection("shop"))
    assert "t-secret" not in repr(find_connection("shop"))


def test_other_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps(SHOP))
    with pytest.raises(ConfigError, match="its type is mssql, expected postgres"):
        read_connection("shop", "postgres")


def test_connection_of_the_environment_does_not_import_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps(SHOP))
    statements = (
        "import sys; from floodmark.airflow_connections import read_connection; "
        "print(read_connection('shop', 'mssql').host, [name for name in sys.modules if name.startswith('airflow')])"
    )
    done = subprocess.run([sys.executable, "-c", statements], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["db", "[]"]


@pytest.mark.parametrize(
    ("settings", "variables", "expected"),
    [
        ("", {}, "False []"),
        ("[metrics]\nstatsd_on = False\notel_on = f\n", {"AIRFLOW__METRICS__STATSD_DATADOG_ENABLED": "0"}, "False []"),
        ("[metrics]\nstatsd_on = True\n", {}, "True ['airflow']"),
        ("", {"AIRFLOW__METRICS__STATSD_ON": "true"}, "True ['airflow']"),
    ],
)
def test_airflow_is_imported_only_for_metrics_that_may_be_on(
    tmp_path: Path, settings: str, variables: dict[str, str], expected: str
) -> None:
    (tmp_path / "airflow.cfg").write_text(settings, encoding="utf-8")
    statements = (
        "import sys; from floodmark.app.alerts import AirflowMetrics; "
        "print(AirflowMetrics().are_on(), [name for name in sys.modules if name == 'airflow'])"
    )
    environment = {name: value for name, value in os.environ.items() if "METRICS" not in name} | variables
    command = [sys.executable, "-c", statements]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == expected
