"""``floodmark spark-server``: a resident Spark, so that loads start none."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from floodmark.cli.process import explained
from floodmark.core.errors import ConfigError
from floodmark.spark.launch.connect_server import server_command, server_environment
from floodmark.spark.launch.target import DEFAULT_MASTER, SparkTarget


def spark_server(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 15002,
    master: Annotated[str, typer.Option(help="The master that runs the tasks.")] = DEFAULT_MASTER,
    conf: Annotated[list[str] | None, typer.Option(help="A property of Spark, as NAME=VALUE.")] = None,
) -> None:
    """Become a Spark Connect server for loads whose Spark connection names it, until a signal ends it."""
    with explained():
        target = SparkTarget(master, dict(_property(text) for text in conf or ()))
        command, environment = server_command(target, host, port), server_environment(target)
        try:
            os.execvpe(command[0], command, environment)  # noqa: S606  (no shell, and Spark's own script)
        except OSError as error:
            raise ConfigError("spark-server", f"{command[0]}: {error.strerror}.") from None


def _property(text: str) -> tuple[str, str]:
    name, is_one, value = text.partition("=")
    if not is_one or not name.startswith("spark."):
        raise ConfigError("spark-server", f"--conf {name} is not a property of Spark as NAME=VALUE.")
    return name, value
