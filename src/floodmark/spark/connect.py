"""The engine behind a Spark Connect server: Java and the tasks are the server's, this process starts no Java.

It needs the packages of the extra ``connect``. What spark-submit sets for each load is set in the session or, where no
session can set it, required of the server; ``floodmark spark-server`` starts one that has it all.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as RemoteSession

from floodmark.core.errors import ConfigError, LoadKilledError, LoadStartError
from floodmark.core.settings import REMOTE_VARIABLE
from floodmark.spark.engine import SESSION_SETTINGS, keep_errors_unprinted
from floodmark.spark.launch.processes import REQUIRED_SETTINGS
from floodmark.spark.stage import LOADED_VERSION, VERSION_SCHEMA, recover, report_version

_LOG = logging.getLogger(__name__)
_START = "Start the server with 'floodmark spark-server', from the same version of Floodmark."
_ANSWER_SECONDS = 10
_RETRY = {"max_retries": 5, "initial_backoff": 100, "max_backoff": 4_000}
"""Some ten seconds. By default a client waits ten minutes for a server that was stopped."""
_MOST_CORES = 1_024
"""The rows of the query that counts the server's cores; more cores than rows would not be counted."""


@dataclass(frozen=True)
class ConnectEngine:
    """``Engine`` behind a server."""

    session: SparkSession
    masters: Sequence[str]
    parallel_tasks: int

    def cores(self) -> int:
        return self.parallel_tasks

    def stop(self) -> None:
        """Release the session: the server interrupts what still runs in it."""
        self.session.stop()


def open_connect_engine() -> ConnectEngine:
    """Return an engine with a session of its own at the server that the environment names.

    Raises LoadKilledError (retried) where the server does not answer, and ConfigError or LoadStartError where it is not
    of this Floodmark.
    """
    began = time.monotonic()
    keep_errors_unprinted()
    # The URL may contain a token: no child needs it.
    channel = DefaultChannelBuilder(os.environ.pop(REMOTE_VARIABLE))
    server = f"sc://{channel.endpoint}"
    _await_server(channel, server)
    session = RemoteSession.builder.channelBuilder(channel).create()
    session.client.set_retry_policies([DefaultPolicy(**_RETRY)])
    try:
        _require_release(session, server)
        for name, value in SESSION_SETTINGS.items():
            session.conf.set(name, value)
        _require_settings(session, server)
        cores = _count_cores(session, server)
    except BaseException as error:
        # A session that the garbage collector closes may do so in a thread of gRPC, which then waits for itself.
        session.client.close()
        if not isinstance(error, PySparkException):
            raise
        raise recover(error) or LoadStartError(server, "Spark failed.", _START, str(error)) from None
    _LOG.info("Spark %s on %s is up after %.1f s.", session.version, server, time.monotonic() - began)
    return ConnectEngine(session, (server, session.conf.get("spark.master")), cores)


def _await_server(channel: DefaultChannelBuilder, server: str) -> None:
    opened = channel.toChannel()
    try:
        grpc.channel_ready_future(opened).result(timeout=_ANSWER_SECONDS)
    except grpc.FutureTimeoutError:
        raise LoadKilledError(
            server,
            f"the Spark Connect server does not answer within {_ANSWER_SECONDS} seconds.",
            "Start it, or correct the Spark connection: host, port, and use_ssl, which must fit the server.",
        ) from None
    finally:
        opened.close()


def _require_release(session: SparkSession, server: str) -> None:
    """Raise ConfigError where the server is another release of Spark: the pickled tasks would not fit it."""
    if _release(session.version) != _release(pyspark.__version__):
        raise ConfigError(
            server, f"it runs Spark {session.version}, and this Floodmark is for {pyspark.__version__}.", _START
        )


def _release(version: str) -> list[str]:
    return version.split(".")[:2]


def _require_settings(session: SparkSession, server: str) -> None:
    wrong = [name for name, value in REQUIRED_SETTINGS.items() if session.conf.get(name, None) != value]
    if wrong:
        needed = ", ".join(f"{name}={REQUIRED_SETTINGS[name]}" for name in wrong)
        raise ConfigError(server, f"it was not started for Floodmark: it needs {needed}.", _START)


def _count_cores(session: SparkSession, server: str) -> int:
    """Return how many tasks run at a time. Raises LoadStartError where the workers have another Floodmark, or none."""
    try:
        rows = session.range(_MOST_CORES).mapInArrow(report_version, VERSION_SCHEMA).collect()
    except PySparkException as error:
        wrong = f"its workers do not run Floodmark {LOADED_VERSION}."
        raise recover(error) or LoadStartError(server, wrong, _START, str(error)) from None
    for found in {row.version for row in rows}:
        if found != LOADED_VERSION and found and LOADED_VERSION:
            wrong = f"its workers run Floodmark {found}, and this is {LOADED_VERSION}."
            raise LoadStartError(server, wrong, _START)
    return len(rows)
