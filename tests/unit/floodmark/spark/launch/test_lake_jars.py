"""The jars of a lake: a run needs the files as they were published, and names the command that fetches them."""

import hashlib
import os
from pathlib import Path

import pytest

from floodmark.core.errors import ConfigError
from floodmark.spark.launch import jars

NAMES = ("iceberg-spark-runtime-4.1_2.13-1.12.0.jar", "postgresql-42.7.14.jar")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files whose checksums are those that are expected."""
    monkeypatch.setenv("FLOODMARK_JARS", str(tmp_path))
    monkeypatch.delenv("SPARK_DIST_CLASSPATH", raising=False)
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode())
    digests = (hashlib.sha256(name.encode()).hexdigest() for name in NAMES)
    monkeypatch.setattr(jars, "JARS", dict(zip(jars.JARS, digests, strict=True)))
    return tmp_path


def test_spark_gets_the_files_after_those_of_the_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(folder / name) for name in NAMES]
    assert jars.lake_environment() == {"SPARK_DIST_CLASSPATH": os.pathsep.join(paths)}
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/opt/own.jar")
    assert jars.lake_environment() == {"SPARK_DIST_CLASSPATH": os.pathsep.join(["/opt/own.jar", *paths])}


@pytest.mark.parametrize("name", NAMES)
def test_missing_jar_is_named_with_the_command_that_fetches_it(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ConfigError) as found:
        jars.lake_environment()
    assert f"{name} is not in {folder}" in str(found.value)
    assert "floodmark fetch-jars" in str(found.value)
    assert "FLOODMARK_JARS" in str(found.value)


def test_lake_in_a_bucket_needs_one_more(folder: Path) -> None:
    assert "iceberg-aws-bundle" not in str(jars.lake_environment())
    with pytest.raises(ConfigError, match=r"iceberg-aws-bundle-1\.12\.0\.jar is not in .+floodmark fetch-jars --s3"):
        jars.lake_environment(s3=True)


def test_jar_that_is_another_file_is_refused(folder: Path) -> None:
    (folder / NAMES[0]).write_bytes(b"another")
    with pytest.raises(ConfigError, match="is another file than expected"):
        jars.lake_environment()


def test_nothing_is_fetched_where_no_jar_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_resolve", lambda *_: pytest.fail("Spark was started"))
    assert jars.fetch_jars() == folder
