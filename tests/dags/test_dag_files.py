"""Every DAG file imports: cheaply, without the network, and with one message when the configuration is wrong."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from dag_process import REPOSITORY, DagProcess

from floodmark.core.errors import FloodmarkBugError

DAG_FILES = sorted((REPOSITORY / "dags").glob("*.py"))
# Airflow and the Spark provider are there anyway; what counts is what our file adds.
PARSE = """
import json, os, runpy, socket, sys
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, task
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
before = set(sys.modules)
def refuse(*arguments, **keywords):
    raise AssertionError("a DAG file used the network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
status = 0
for path in {paths!r}:
    if os.fork() == 0:
        names = runpy.run_path(path)
        dags = sorted(name for name, value in names.items() if isinstance(value, DAG))
        result = {{"path": path, "dags": dags, "imported": sorted(set(sys.modules) - before)}}
        print("RESULT " + json.dumps(result), flush=True)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.wait()[1]) or status
sys.exit(status)
"""
"""It parses each file in a process that has parsed no other: forked from one that has imported Airflow, in seconds."""
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
made = {{"": sorted(DagBag({folder!r}).dags)}}
for dag_id in {dag_ids!r}:
    with _airflow_parsing_context_manager(dag_id=dag_id, task_id="t"):
        made[dag_id] = sorted(DagBag({folder!r}).dags)
print("RESULT " + json.dumps(made))
"""
"""It prints all DAGs of a folder as the DAG processor makes them, and by the id of a DAG those that a task of it has
(``airflow.sdk.execution_time.task_runner``)."""
TASKS_OF = ("cdc_p2", "cdc_load_p2", "cdc_drift_s2", "cdc_switch_s2", "cdc_capture_s2", "cdc_retention_s2")
HEAVY = {
    "adbc_driver_postgresql",
    "floodmark.postgres.ledger.ledger",
    "floodmark.quality.great_expectations",
    "floodmark.sources.cdc.source",
    "floodmark.postgres.warehouse.warehouse",
    "great_expectations",
    "mssql_python",
    "numpy",
    "openlineage",
    "pandas",
    "psycopg",
    "pyarrow",
    "pymssql",
    "pyspark",
    "sqlglot",
}


def results(output: str) -> list[Any]:
    lines = [line.removeprefix("RESULT ") for line in output.splitlines() if line.startswith("RESULT ")]
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Every DAG file's result by its path, and what was said."""
    folder = tmp_path_factory.mktemp("all")
    config = folder / "all.yaml"
    config.write_text(ALL_DAGS, encoding="utf-8")
    code = PARSE.format(paths=[str(path) for path in DAG_FILES])
    done = DagProcess(folder).run(code, FLOODMARK_CONFIG=str(config))
    return {result["path"]: result for result in results(done.stdout)}, done.stderr


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: path.name)
def test_dag_file_imports_without_the_network_and_without_anything_heavy(
    parsed: tuple[dict[str, Any], str], path: Path
) -> None:
    by_path, said = parsed
    assert str(path) in by_path, said
    assert by_path[str(path)]["dags"]
    assert not HEAVY & set(by_path[str(path)]["imported"])


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: path.name)
def test_dag_file_is_one_that_airflow_reads(path: Path) -> None:
    text = path.read_text(encoding="utf-8").lower()
    assert "dag" in text
    assert "airflow" in text


def test_dag_file_makes_the_dags_of_each_pipeline_and_source(dag_process: DagProcess, tmp_path: Path) -> None:
    table = "{source: dbo.A, target: a.a%s}"
    pipelines = "\n".join(f"  p{number}: {{source: s, tables: [{table % number}]}}" for number in (1, 2))
    config = tmp_path / "two.yaml"
    config.write_text(f"sources: {{s: {{conn_id: c}}}}\nwarehouse: {{conn_id: w}}\npipelines:\n{pipelines}\n")
    code = PARSE.format(paths=[str(REPOSITORY / "dags" / "floodmark_dags.py")])
    done = dag_process.run(code, FLOODMARK_CONFIG=str(config))
    assert done.returncode == 0, done.stderr
    made = ["cdc_drift_s", "cdc_load_p1", "cdc_load_p2", "cdc_p1", "cdc_p2", "cdc_switch_s"]
    assert [result["dags"] for result in results(done.stdout)] == [made]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The DAGs of two of everything: as the DAG processor makes them under "", and for a task by its DAG."""
    folder = tmp_path_factory.mktemp("many")
    config = folder / "many.yaml"
    config.write_text(TWO_OF_EACH, encoding="utf-8")
    code = PARSE_FOR_A_TASK.format(folder=str(REPOSITORY / "dags"), dag_ids=TASKS_OF)
    done = DagProcess(folder).run(code, FLOODMARK_CONFIG=str(config))
    assert done.returncode == 0, done.stderr
    (result,) = results(done.stdout)
    return dict(result)


def test_dag_file_lists_the_families_of_the_dags_that_it_makes(made: dict[str, list[str]]) -> None:
    families = re.findall(r"^(cdc_\w*)<\w+> ", DAG_FILES[0].read_text(encoding="utf-8"), re.MULTILINE)
    # "cdc_" alone is that of a pipeline, so the longest one is that of a DAG.
    found = {max((family for family in families if dag_id.startswith(family)), key=len) for dag_id in made[""]}
    assert found == set(families)


@pytest.mark.parametrize("dag_id", TASKS_OF)
def test_process_of_a_task_makes_only_the_dag_of_the_task(made: dict[str, list[str]], dag_id: str) -> None:
    """Airflow parses the file again for each task."""
    assert made[dag_id] == [dag_id]
    assert len(made[""]) == 12
    assert dag_id in made[""]


def test_a_wrong_configuration_is_one_import_error_that_lists_every_problem(
    dag_process: DagProcess, tmp_path: Path
) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text("sources: {s: {conn_id: 3}}\npipelines: {}\nnonsense: 1\n")
    code = PARSE.format(paths=[str(REPOSITORY / "dags" / "floodmark_dags.py")])
    done = dag_process.run(code, FLOODMARK_CONFIG=str(config))
    assert done.returncode == 1
    _, _, message = done.stderr.rpartition("ConfigError: ")
    assert message.startswith(f"{config}: ")
    for problem in ("sources.s.conn_id", "nonsense: unknown key", "warehouse: is missing"):
        assert problem in message


def test_a_fault_while_dags_are_built_is_an_import_error_and_not_a_file_without_dags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object) -> None:
        raise AttributeError("'X' object has no attribute 'y'")

    monkeypatch.setattr("floodmark.dags.build_every_dag", fail)
    with pytest.raises(FloodmarkBugError, match="the DAGs could not be built: 'X' object has no attribute 'y'"):
        runpy.run_path(str(DAG_FILES[0]))


def test_dags_survive_serialization(dag_process: DagProcess) -> None:
    """DAGs are serialized as the DAG processor stores them; secrets and connections are not in it."""
    code = f"""
import json, runpy
from airflow.serialization.serialized_objects import DagSerialization
dag = runpy.run_path({str(DAG_FILES[0])!r})["cdc_shop"]
print("RESULT " + json.dumps(DagSerialization.to_dict(dag), default=str))
"""
    secret = json.dumps({"conn_type": "mssql", "host": "h", "password": "s3cret-s3cret"})
    done = dag_process.run(code, AIRFLOW_CONN_SHOP_MSSQL=secret)
    assert done.returncode == 0, done.stderr
    text = done.stdout.partition("RESULT ")[2]
    assert "floodmark://shop/shop/orders" in text
    assert "s3cret" not in done.stdout + done.stderr
