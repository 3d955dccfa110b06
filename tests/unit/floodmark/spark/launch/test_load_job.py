"""The load job as a command: what it is given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from floodmark.spark.launch.command import (
    application,
    job_environment,
    job_settings,
    submit_command,
)

SECRET = '{"password": "s3cret"}'


def test_command_names_window_and_config_and_holds_no_secret() -> None:
    command = submit_command(job_settings("local[2]"), "local[2]", 7, Path("/etc/pipelines.yaml"))
    assert command[:3] == ["spark-submit", "--master", "local[2]"]
    assert command[-5:] == [str(application()), "--window-id", "7", "--config", "/etc/pipelines.yaml"]
    assert "FLOODMARK_SOURCE" not in " ".join(command)


def test_environment_holds_the_connections_and_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    environment = job_environment({"FLOODMARK_SOURCE": SECRET}, "local[*]")
    assert environment["FLOODMARK_SOURCE"] == SECRET
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["PATH"].startswith(str(Path(sys.executable).parent))


def test_environment_brings_java_where_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    environment = job_environment({"FLOODMARK_SOURCE": SECRET}, "local[*]")
    java = Path(environment["JAVA_HOME"]) / "bin" / "java"
    of_spark = [java, "--add-modules=jdk.incubator.vector", "-version"]
    assert (
        subprocess.run(of_spark, env=environment | {"PATH": "/bin"}, capture_output=True, check=False).returncode == 0
    )


def test_environment_names_spark_where_nobody_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert (
        Path(job_environment({"FLOODMARK_SOURCE": SECRET}, "local[*]")["SPARK_HOME"]) / "bin" / "spark-class"
    ).is_file()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert job_environment({"FLOODMARK_SOURCE": SECRET}, "local[*]")["SPARK_HOME"] == "/opt/spark"


def test_settings_bind_a_local_driver_to_loopback_and_leave_a_cluster_alone() -> None:
    assert job_settings("local[*]")["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in job_settings("spark://master:7077")


def test_java_keeps_its_temporary_files_where_everything_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.delenv("TMPDIR", raising=False)
    assert "SPARK_SUBMIT_OPTS" not in job_environment({"FLOODMARK_SOURCE": SECRET}, "local[*]")
    monkeypatch.setenv("TMPDIR", "/data/my tmp")
    assert (
        job_environment({"FLOODMARK_SOURCE": SECRET}, "local[*]")["SPARK_SUBMIT_OPTS"]
        == '"-Djava.io.tmpdir=/data/my tmp"'
    )
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Djava.io.tmpdir=/other")
    assert "SPARK_SUBMIT_OPTS" not in job_environment({"FLOODMARK_SOURCE": SECRET}, "local[*]")
