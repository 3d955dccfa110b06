"""The jars of Debezium, fetched from Maven Central by their coordinates, and the Java that runs them.

Debezium is no dependency of Floodmark. Its jars are kept in ``build/``, and Ivy, which PySpark brings, fetches them.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyspark

from floodmark.spark.launch.java import JAVA_VARIABLE, java_environment

VERSION = "3.5.0.Final"
_COORDINATES = (
    ("io.debezium", "debezium-embedded", VERSION),
    ("io.debezium", "debezium-connector-sqlserver", VERSION),
    ("io.debezium", "debezium-connector-jdbc", VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
_MODULES = frozenset({"java.desktop", "java.management", "java.naming", "java.sql", "jdk.compiler"})
"""The modules of Java that Debezium, its sink's connection pool and a program from source need."""
_BUILD = Path(__file__).resolve().parents[2] / "build"
_FETCH_SECONDS = 900


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


def fetch_jars(java: Path, build: Path = _BUILD) -> Path:
    """Return the folder of the jars, fetched once. Raise MissingPeerError where they cannot be fetched."""
    folder = build / f"debezium-{VERSION}"
    if folder.is_dir():
        return folder
    build.mkdir(parents=True, exist_ok=True)
    print(f"bench-peers: fetching Debezium {VERSION} from Maven Central into {folder}", flush=True)
    with tempfile.TemporaryDirectory(dir=build) as name:
        _retrieve(java, Path(name))
        # Under its name only when it is complete.
        (Path(name) / "jars").rename(folder)
    return folder


def _retrieve(java: Path, folder: Path) -> None:
    description = folder / "ivy.xml"
    description.write_text(describe_module(), encoding="utf-8")
    ivy = [str(jar) for jar in Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")]
    command = [str(java), "-cp", os.pathsep.join(ivy), "org.apache.ivy.Main", "-ivy", str(description)]
    command += ["-confs", "default", "-types", "jar", "bundle"]
    command += [
        "-cache",
        str(folder / "cache"),
        "-retrieve",
        f"{folder}/jars/[artifact]-[revision](-[classifier]).[ext]",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise MissingPeerError(f"Debezium {VERSION} was not fetched within {_FETCH_SECONDS} s; run it again") from None
    if done.returncode != 0:
        raise MissingPeerError(
            f"Debezium {VERSION} was not fetched: {why_not(done.stdout + done.stderr)}; it needs Maven Central"
        )


def describe_module() -> str:
    """Return Ivy's description of what is fetched."""
    wanted = "".join(
        f'<dependency org="{org}" name="{name}" rev="{revision}"/>' for org, name, revision in _COORDINATES
    )
    return (
        '<ivy-module version="2.0"><info organisation="floodmark" module="peers"/>'
        '<configurations><conf name="default"/></configurations>'
        f'<dependencies defaultconf="default->runtime,compile,default">{wanted}</dependencies></ivy-module>'
    )


def why_not(printed: str) -> str:
    """Return the reason from what Ivy printed."""
    lines = [line.strip(" :\t") for line in printed.splitlines()]
    found = sorted({line for line in lines if line.endswith("not found")})
    return ", ".join(found) or next((line for line in reversed(lines) if line), "Ivy gave no reason")
