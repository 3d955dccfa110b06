"""The job's edges: its environment, its last line, errors out of workers, and which Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.core.errors import CdcNotEnabledError, ConfigError
from floodmark.core.load_result import parse_load_result
from floodmark.spark import java, job
from floodmark.spark.carried_errors import carried, recover

ERROR = CdcNotEnabledError("dbo.Orders", 'error 208: "dbo.Orders" {ä}', "Enable it.")


def test_error_survives_the_text_of_a_traceback() -> None:
    try:
        with carried():
            raise ERROR
    except RuntimeError as error:
        text = f"Traceback (most recent call last):\n  File …\nCarriedError: {error}\n\tat org.apache.spark…"
    found = recover(RuntimeError(text))
    assert type(found) is CdcNotEnabledError
    assert str(found) == str(ERROR)


def test_other_error_is_not_taken_for_ours() -> None:
    assert recover(RuntimeError("FLOODMARK is down")) is None
    with pytest.raises(KeyError), carried():
        raise KeyError("x")


@pytest.mark.parametrize("value", [None, "{}", "not json", '{"host": "h", "password": "s3cret"'])
def test_job_without_a_connection_says_which_variable_and_shows_no_password(
    value: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(job.SOURCE_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(job.SOURCE_VARIABLE, value)
    assert job.main(["--window-id", "7"]) == 1
    output = capsys.readouterr().out
    result = parse_load_result(output.splitlines()[-1])
    assert result is not None
    assert result.window_id == 7
    assert type(result.error) is ConfigError
    assert "FLOODMARK_SOURCE" in str(result.error)
    assert "s3cret" not in output


def test_java_home_is_kept_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path / "bin", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.find_java_home() == str(tmp_path)


def test_java_of_the_path_needs_no_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path, "21")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java.find_java_home() is None


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_old_java_gives_way_to_the_one_in_the_wheel(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path / "bin", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = java.find_java_home()
    assert found is not None
    assert (Path(found) / "bin" / "java").exists()
    assert found != str(tmp_path)


def _java(folder: Path, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    script.chmod(0o755)
