"""Every DAG file imports: cheaply, without the network, and with one message when the configuration is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dag_process import REPOSITORY, DagProcess

DAG_FILES = sorted((REPOSITORY / "dags").glob("*.py"))
# Airflow and the Spark provider are there anyway; what counts is what our file adds.
PARSE = """
import json, runpy, socket, sys
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, task
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
before = set(sys.modules)
def refuse(*arguments, **keywords):
    raise AssertionError("a DAG file used the network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
names = runpy.run_path({path!r})
dags = {{name: value for name, value in names.items() if isinstance(value, DAG)}}
print("RESULT " + json.dumps({{"dags": sorted(dags), "imported": sorted(set(sys.modules) - before)}}))
"""
ALL_DAGS = """
sources:
  s:
    conn_id: c
    capture: {stops: [{stop: "0 8 * * 1-5", start: "0 18 * * 1-5"}], time_zone: Europe/Berlin}
    retention: {keep: 3d, on_low: raise_retention}
warehouse: {conn_id: w}
pipelines: {p: {source: s, tables: [{source: dbo.A, target: a.a}]}}
"""
"""A configuration of which every DAG file makes something."""
TWO_OF_EACH = """
sources:
  s1: &source
    conn_id: c
    capture: {stops: [{stop: "0 8 * * 1-5", start: "0 18 * * 1-5"}], time_zone: Europe/Berlin}
    retention: {keep: 3d, on_low: raise_retention}
  s2: *source
warehouse: {conn_id: w}
pipelines:
  p1: {source: s1, tables: [{source: dbo.A, target: a.a}]}
  p2: {source: s2, tables: [{source: dbo.B, target: a.b}]}
"""
PARSE_FOR_A_TASK = """
import json
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager
made = {{"as the DAG processor": sorted(DagBag({folder!r}).dags)}}
with _airflow_parsing_context_manager(dag_id={dag_id!r}, task_id="t"):
    made["as a task"] = sorted(DagBag({folder!r}).dags)
print("RESULT " + json.dumps(made))
"""
"""It prints all DAGs of a folder, and those that a task has (``airflow.sdk.execution_time.task_runner``)."""
HEAVY = {
    "adbc_driver_postgresql",
    "floodmark.postgres.ledger.ledger",
    "floodmark.quality.great_expectations",
    "floodmark.sources.cdc.source",
    "floodmark.postgres.warehouse.warehouse",
    "great_expectations",
    "mssql_python",
    "numpy",
    "pandas",
    "psycopg",
    "pyarrow",
    "pymssql",
    "pyspark",
    "sqlglot",
}


def parse(dag_process: DagProcess, path: Path, **variables: str) -> dict[str, Any]:
    done = dag_process.run(PARSE.format(path=str(path)), **variables)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return result


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: path.name)
def test_dag_file_imports_without_the_network_and_without_anything_heavy(
    dag_process: DagProcess, path: Path, tmp_path: Path
) -> None:
    config = tmp_path / "all.yaml"
    config.write_text(ALL_DAGS, encoding="utf-8")
    result = parse(dag_process, path, FLOODMARK_CONFIG=str(config))
    assert result["dags"]
    assert not HEAVY & set(result["imported"])


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: path.name)
def test_dag_file_is_one_that_airflow_looks_into(path: Path) -> None:
    text = path.read_text(encoding="utf-8").lower()
    assert "dag" in text
    assert "airflow" in text


def test_dag_file_makes_one_dag_per_pipeline(dag_process: DagProcess, tmp_path: Path) -> None:
    table = "{source: dbo.A, target: a.a%s}"
    pipelines = "\n".join(f"  p{number}: {{source: s, tables: [{table % number}]}}" for number in (1, 2))
    config = tmp_path / "two.yaml"
    config.write_text(f"sources: {{s: {{conn_id: c}}}}\nwarehouse: {{conn_id: w}}\npipelines:\n{pipelines}\n")
    result = parse(dag_process, REPOSITORY / "dags" / "cdc.py", FLOODMARK_CONFIG=str(config))
    assert result["dags"] == ["cdc_p1", "cdc_p2"]


@pytest.mark.parametrize(
    "dag_id", ["cdc_p2", "cdc_load_p2", "cdc_drift_s2", "cdc_switch_s2", "cdc_capture_s2", "cdc_retention_s2"]
)
def test_process_of_a_task_makes_only_the_dag_of_the_task(dag_process: DagProcess, dag_id: str, tmp_path: Path) -> None:
    """Airflow parses the file again for each task."""
    config = tmp_path / "many.yaml"
    config.write_text(TWO_OF_EACH, encoding="utf-8")
    code = PARSE_FOR_A_TASK.format(folder=str(REPOSITORY / "dags"), dag_id=dag_id)
    done = dag_process.run(code, FLOODMARK_CONFIG=str(config))
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout.rpartition("RESULT ")[2])
    assert made["as a task"] == [dag_id]
    assert len(made["as the DAG processor"]) == 12
    assert dag_id in made["as the DAG processor"]


def test_a_wrong_configuration_is_one_import_error_that_lists_every_problem(
    dag_process: DagProcess, tmp_path: Path
) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text("sources: {s: {conn_id: 3}}\npipelines: {}\nnonsense: 1\n")
    code = PARSE.format(path=str(REPOSITORY / "dags" / "cdc.py"))
    done = dag_process.run(code, FLOODMARK_CONFIG=str(config))
    assert done.returncode == 1
    _, _, message = done.stderr.rpartition("ConfigError: ")
    assert message.startswith(f"{config}: ")
    for problem in ("sources.s.conn_id", "nonsense: unknown key", "warehouse: is missing"):
        assert problem in message


def test_dags_survive_serialization(dag_process: DagProcess) -> None:
    """As the DAG processor stores them; secrets and connections are not in it."""
    code = f"""
import json, runpy
from airflow.serialization.serialized_objects import DagSerialization
dag = runpy.run_path({str(REPOSITORY / "dags" / "cdc.py")!r})["cdc_shop"]
print("RESULT " + json.dumps(DagSerialization.to_dict(dag), default=str))
"""
    secret = json.dumps({"conn_type": "mssql", "host": "h", "password": "s3cret-s3cret"})
    done = dag_process.run(code, AIRFLOW_CONN_SHOP_MSSQL=secret)
    assert done.returncode == 0, done.stderr
    text = done.stdout.partition("RESULT ")[2]
    assert "floodmark://shop/shop/orders" in text
    assert "s3cret" not in done.stdout + done.stderr
