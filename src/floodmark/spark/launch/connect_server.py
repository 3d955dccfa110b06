"""A resident Spark for loads: a Spark that listens for clients of Spark Connect, as a command and its environment.

Spark's own script (``start-connect-server.sh``) is not used. The server that it starts gives every session a Python
daemon of its own, which never ends: a second for each load, and more memory with each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from floodmark import spark
from floodmark.core.errors import ConfigError
from floodmark.core.hosts import is_loopback
from floodmark.spark.launch.command import WORKER_DAEMON, job_environment, job_settings
from floodmark.spark.launch.target import SparkTarget

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  (its name)
"""The variable that gives Spark the token which clients must have."""
REQUIRED_SETTINGS = WORKER_DAEMON | {
    # All sessions use one Python daemon.
    "spark.sql.artifact.isolation.enabled": "false",
}
"""Settings that a load requires of a server, because no session can change them."""
_SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    # The server does not notice that a client was killed, and its load would go on. So it ends the stream of results
    # after a while, which a client that lives takes up again at once, and interrupts what no client takes up.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "10s",
    "spark.connect.execute.manager.detachedTimeout": "20s",
    "spark.connect.execute.manager.maintenanceInterval": "5s",
    "spark.connect.session.manager.defaultSessionTimeout": "10m",
}
CLIENT_ERRORS = "org.apache.spark.sql.connect.utils.ErrorUtils"
"""The logger that repeats errors which the client gets, with the values in their messages."""
ADDRESS_SETTING, PORT_SETTING = "spark.connect.grpc.binding.address", "spark.connect.grpc.binding.port"


def server_command(target: SparkTarget, host: str, port: int) -> list[str]:
    """Return the command of a server that listens on an address. Raises ConfigError where anyone could use it."""
    if not is_loopback(host) and TOKEN_VARIABLE not in os.environ:
        raise ConfigError(
            "spark-server",
            f"anyone who reaches {host}:{port} could run programs on this machine.",
            f"Set {TOKEN_VARIABLE} to a secret, and give it to the Spark connection as its password.",
        )
    listening = {ADDRESS_SETTING: host, PORT_SETTING: str(port)}
    settings = job_settings(target) | REQUIRED_SETTINGS | _SETTINGS | listening | dict(target.conf)
    confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    application = Path(spark.__file__).parent / "spark_jobs" / "serve.py"
    return [target.binary, "--master", target.master, "--name", "floodmark", *confs, str(application)]


def server_environment(target: SparkTarget) -> Mapping[str, str]:
    """Return the whole environment of the server."""
    return os.environ | job_environment({}, target)
