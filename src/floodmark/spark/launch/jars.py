"""The jars of a lake: how they are fetched, found, and given to Spark.

Spark's own resolver fetches them, once, into a folder of the environment. A run names files alone.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from floodmark.core.errors import ConfigError, LoadStartError, command_line
from floodmark.spark.launch.target import java_environment

JARS = {
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0": (
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
    ),
    "org.postgresql:postgresql:42.7.14": "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
}
"""The coordinates of the jars, and the SHA-256 of each."""
S3_JARS = {
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0": "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957"
}
"""The further ones of a lake whose tables are in a bucket."""
JARS_VARIABLE = "FLOODMARK_JARS"
"""Names a folder that has the jars, for a network without a repository."""
_CLASSES_VARIABLE = "SPARK_DIST_CLASSPATH"
"""Spark's variable for more classes of the driver, which is the executor of a local Spark."""
_NOT_NEEDED = "org.checkerframework:checker-qual"
_START = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate().stop()"
_SUBJECT = "the jars of the lake"
_LAST_LINES = 5


def jars_folder() -> Path:
    """Return the folder in FLOODMARK_JARS, else one next to the packages, for every user of the installation."""
    named = os.environ.get(JARS_VARIABLE)
    return Path(named).absolute() if named else Path(sys.prefix, "share", "floodmark", "jars")


def lake_environment(*, s3: bool = False) -> Mapping[str, str]:
    """Return the variables that give the jars to a local Spark. Raises ConfigError where one is missing or damaged.

    s3: the tables are in a bucket.
    """
    folder, paths = jars_folder(), []
    for jar, expected in _needed(s3=s3).items():
        path = folder / _file_name(jar)
        if not path.is_file():
            raise ConfigError(_SUBJECT, f"{path.name} is not in {folder}.", _how(s3=s3))
        if _digest(path) != expected:
            raise ConfigError(_SUBJECT, f"{path} is another file than expected.", f"Remove it. {_how(s3=s3)}")
        paths.append(path)
    known = os.environ.get(_CLASSES_VARIABLE)
    return {_CLASSES_VARIABLE: os.pathsep.join([*([known] if known else []), *map(str, paths)])}


def fetch_jars(*, s3: bool = False) -> Path:
    """Fetch the jars that are missing, and return their folder. Raises LoadStartError where Spark cannot fetch them.

    s3: also those for tables in a bucket.
    """
    folder = jars_folder()
    missing = {jar: digest for jar, digest in _needed(s3=s3).items() if not (folder / _file_name(jar)).is_file()}
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as fetched:
            _resolve(missing, fetched)
            for jar, digest in missing.items():
                _keep(jar, digest, Path(fetched), folder)
    lake_environment(s3=s3)
    return folder


def _needed(*, s3: bool) -> Mapping[str, str]:
    return JARS | S3_JARS if s3 else JARS


def _resolve(jars: Mapping[str, str], to: str) -> None:
    """Start a Spark that fetches the jars into ``to``, and ends."""
    submitted = (
        f"--master local[1] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 "
        f"--packages {','.join(jars)} --exclude-packages {_NOT_NEEDED} --conf spark.jars.ivy={to} pyspark-shell"
    )
    environment = os.environ | java_environment() | {"PYSPARK_SUBMIT_ARGS": submitted, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", _START],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = " / ".join(done.stdout.strip().splitlines()[-_LAST_LINES:])
        raise LoadStartError(
            _SUBJECT,
            "Spark could not fetch them from a Maven repository.",
            f"On a closed network, copy them into a folder that {JARS_VARIABLE} names: "
            f"{', '.join(map(_file_name, jars))}.",
            last,
        )


def _keep(jar: str, digest: str, fetched: Path, folder: Path) -> None:
    group = jar.partition(":")[0]
    path = fetched / "jars" / f"{group}_{_file_name(jar)}"
    if _digest(path) != digest:
        raise LoadStartError(_SUBJECT, f"{_file_name(jar)} is another file than expected.", "Nothing was kept of it.")
    path.replace(folder / _file_name(jar))


def _file_name(jar: str) -> str:
    _, name, version = jar.split(":")
    return f"{name}-{version}.jar"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _how(*, s3: bool) -> str:
    command = command_line("fetch-jars", *(["--s3"] if s3 else []))
    return f"Fetch the jars: {command}. On a closed network, {JARS_VARIABLE} names their folder."
