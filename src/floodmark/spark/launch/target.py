"""Where the load job runs: the master and the settings that a Spark connection gives. For the operator and the CLI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.core.errors import ConfigError
from floodmark.core.hosts import is_loopback
from floodmark.spark.launch.server_address import client_url, is_server

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
