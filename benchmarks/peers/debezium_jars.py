"""The jars of Debezium, fetched from Maven Central by their coordinates, and the Java that runs them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.java_packages import BUILD, MissingPackagesError, Packages
from floodmark.spark.launch.target import JAVA_VARIABLE, java_environment

VERSION = "3.5.0.Final"
_DEBEZIUM = Packages(
    "Debezium",
    VERSION,
    (
        ("io.debezium", "debezium-embedded", VERSION),
        ("io.debezium", "debezium-connector-sqlserver", VERSION),
        ("io.debezium", "debezium-connector-jdbc", VERSION),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ),
)
_MODULES = frozenset({"java.desktop", "java.management", "java.naming", "java.sql", "jdk.compiler"})
"""The modules of Java that Debezium, its sink's connection pool and a program from source need."""


class MissingPeerError(Exception):
    """A message about something that the comparison needs and this machine does not have."""


@dataclass(frozen=True)
class Installation:
    """A Debezium that can run."""

    java: Path
    jars: Path
    """The folder of the jars."""


def install() -> Installation:
    """Return what is needed to run Debezium. Raise MissingPeerError where it cannot be had."""
    java = find_java()
    return Installation(java, fetch_jars(java))


def find_java() -> Path:
    """Return the Java that Spark would run on. Raise MissingPeerError where it lacks modules."""
    java = Path(java_environment()[JAVA_VARIABLE]) / "bin" / "java"
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False).stdout
    if missing := missing_modules(listed):
        raise MissingPeerError(
            f"{java} has no {', '.join(missing)}, which Debezium needs; install a JDK of version 17 or later and name "
            "its folder in JAVA_HOME"
        )
    return java


def missing_modules(listed: str) -> list[str]:
    """Return the needed modules that are not in the output of ``java --list-modules``."""
    return sorted(_MODULES - {line.partition("@")[0].strip() for line in listed.splitlines()})


def fetch_jars(java: Path, build: Path = BUILD) -> Path:
    """Return the folder of the jars, fetched once. Raise MissingPeerError where they cannot be fetched."""
    try:
        return _DEBEZIUM.fetch(java, build)
    except MissingPackagesError as error:
        raise MissingPeerError(str(error)) from None
