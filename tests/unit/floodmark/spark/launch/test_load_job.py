"""The load job as a command: what it is given."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from floodmark.core.errors import LoadStartError
from floodmark.spark.launch.command import (
    application,
    driver_command,
    job_environment,
    job_settings,
    submit_command,
)
from floodmark.spark.launch.processes import record_classes
from floodmark.spark.launch.target import SparkTarget

SECRETS = {"FLOODMARK_SOURCE": '{"password": "s3cret"}'}


def test_command_names_window_and_config_and_holds_no_secret() -> None:
    command = submit_command(SparkTarget("local[2]"), 7, Path("/etc/pipelines.yaml"))
    assert command[:3] == ["spark-submit", "--master", "local[2]"]
    assert command[-5:] == [str(application()), "--window-id", "7", "--config", "/etc/pipelines.yaml"]
    assert "FLOODMARK_SOURCE" not in " ".join(command)


def driver_of(target: SparkTarget, **settings: str) -> tuple[list[str], dict[str, str]]:
    command = submit_command(target, 7, Path("/etc/pipe lines.yaml"))
    return driver_command(
        command, str(application()), job_settings(target) | settings, job_environment(SECRETS, target)
    )


def test_driver_is_run_at_once_and_has_the_options_for_the_spark_that_it_may_start() -> None:
    command, options = driver_of(SparkTarget("local[2]", {"spark.executor.extraJavaOptions": "-Da='b c'"}))
    assert command == [sys.executable, str(application()), "--window-id", "7", "--config", "/etc/pipe lines.yaml"]
    split = shlex.split(options.pop("PYSPARK_SUBMIT_ARGS"))
    assert split[:4] == ["--master", "local[2]", "--name", "floodmark window 7"]
    assert "spark.executor.extraJavaOptions=-Da='b c'" in split
    assert split[-1] == "pyspark-shell"
    assert options == {}


def test_executors_run_the_python_that_the_connection_names() -> None:
    command, options = driver_of(SparkTarget("spark://h", {"spark.pyspark.python": "./environment/bin/python"}))
    assert (command[0], options["PYSPARK_PYTHON"]) == (sys.executable, "./environment/bin/python")


def test_spark_submit_starts_the_driver_where_its_python_or_its_spark_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert driver_of(SparkTarget(binary="spark3-submit"))[0][0] == "spark3-submit"
    assert driver_of(SparkTarget(), **{"spark.pyspark.python": "/opt/python3"})[0][0] == "spark-submit"
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/opt/python3")
    assert driver_of(SparkTarget())[0][0] == "spark-submit"
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert driver_of(SparkTarget()) == (submit_command(SparkTarget(), 7, Path("/etc/pipe lines.yaml")), {})


def test_environment_holds_the_connections_and_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    environment = job_environment(SECRETS, SparkTarget())
    assert environment["FLOODMARK_SOURCE"] == SECRETS["FLOODMARK_SOURCE"]
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["PATH"].startswith(str(Path(sys.executable).parent))


def test_environment_brings_java_where_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    environment = job_environment(SECRETS, SparkTarget())
    java = Path(environment["JAVA_HOME"]) / "bin" / "java"
    of_spark = [java, "--add-modules=jdk.incubator.vector", "-version"]
    assert (
        subprocess.run(of_spark, env=environment | {"PATH": "/bin"}, capture_output=True, check=False).returncode == 0
    )


def test_environment_names_spark_where_nobody_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert (Path(job_environment(SECRETS, SparkTarget())["SPARK_HOME"]) / "bin" / "spark-class").is_file()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert job_environment(SECRETS, SparkTarget())["SPARK_HOME"] == "/opt/spark"


def test_settings_keep_a_driver_on_loopback_where_its_executors_are() -> None:
    for master in ("local[*]", "spark://127.0.0.1:7077", "spark://localhost:7077,other:7077"):
        assert job_settings(SparkTarget(master))["spark.driver.bindAddress"] == "127.0.0.1"
    for master in ("spark://master:7077", "yarn", "k8s://https://10.0.0.1:443"):
        assert "spark.driver.bindAddress" not in job_settings(SparkTarget(master))


def test_settings_of_a_cluster_give_way_to_those_of_the_connection() -> None:
    assert job_settings(SparkTarget("yarn"))["spark.speculation"] == "false"
    assert job_settings(SparkTarget("yarn", {"spark.task.maxFailures": "5"}))["spark.task.maxFailures"] == "5"
    assert "spark.task.maxFailures" not in job_settings(SparkTarget())


def test_driver_keeps_its_python_where_executors_have_their_own() -> None:
    own = {"spark.pyspark.python": "./environment/bin/python"}
    assert job_settings(SparkTarget("yarn", own))["spark.pyspark.driver.python"] == sys.executable
    assert "spark.pyspark.driver.python" not in job_settings(SparkTarget("yarn"))
    chosen = own | {"spark.pyspark.driver.python": "/opt/python"}
    assert job_settings(SparkTarget("yarn", chosen))["spark.pyspark.driver.python"] == "/opt/python"


def test_java_keeps_its_temporary_files_where_everything_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.delenv("TMPDIR", raising=False)
    assert "SPARK_SUBMIT_OPTS" not in job_environment(SECRETS, SparkTarget())
    monkeypatch.setenv("TMPDIR", "/data/my tmp")
    assert job_environment(SECRETS, SparkTarget())["SPARK_SUBMIT_OPTS"] == '"-Djava.io.tmpdir=/data/my tmp"'
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Djava.io.tmpdir=/other")
    assert "SPARK_SUBMIT_OPTS" not in job_environment(SECRETS, SparkTarget())


def test_classes_that_cannot_be_recorded_are_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, why in (("file", "Not a directory"), ("with:colon", "has a colon")):
        (tmp_path / name).touch()
        monkeypatch.setattr(sys, "prefix", str(tmp_path / name))
        with pytest.raises(LoadStartError, match=rf"^the archive of Spark's classes: .*{why}"):
            record_classes()
