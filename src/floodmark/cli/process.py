"""The common parts of all commands: options, errors as one message and an exit status, and a plain log."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.file_proxy import FileProxy

from floodmark.app.alerts import AirflowMetrics
from floodmark.app.pipeline import App, config_path
from floodmark.cli.tables import print_line
from floodmark.config.loading import load_config
from floodmark.core.errors import ConfigError, FloodmarkError
from floodmark.sync.ports import LoggedProgress, Progress

EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_TRY_AGAIN = 75
out = Console(soft_wrap=False)
"""The console for results."""
err = Console(stderr=True, highlight=False, markup=False, emoji=False)
"""The console for the log, the progress and errors."""

PipelineName = Annotated[str, typer.Argument(help="Name of the pipeline in the configuration.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The configuration (default: FLOODMARK_CONFIG, include/pipelines.yaml).")
]
Wide = Annotated[bool, typer.Option("--wide", help="Print all columns, however long the lines.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_app(config: Path | None, progress: Progress | None = None) -> App:
    """Return the configuration of a command with its pipelines. Raises ConfigError.

    config: the file, None for the default one. progress: receives the progress, None for the log.
    """
    loaded = load_config(config or config_path())
    return App(loaded, metrics=AirflowMetrics(), progress=progress or LoggedProgress())


@contextmanager
def explained() -> Iterator[None]:
    """Turn our errors into one message and an exit status."""
    try:
        yield
    except FloodmarkError as error:
        print_line(err, f"floodmark: {error.in_full}")
        if isinstance(error, ConfigError):
            raise typer.Exit(EXIT_CONFIG) from None
        raise typer.Exit(EXIT_TRY_AGAIN if error.retryable else EXIT_FAILED) from None


def log_plainly() -> None:
    """Log only our own messages, to standard error. Airflow would write its warnings to standard output.

    On a terminal they are wrapped between words, and above the bars.
    """
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    handler = logging.StreamHandler(FileProxy(err, sys.stderr) if sys.stderr.isatty() else sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    own = logging.getLogger("floodmark")
    own.addHandler(handler)
    own.setLevel(logging.INFO)
    own.propagate = False


def has_airflow_database() -> bool:
    """Return whether Airflow is configured here. To query an Airflow that is not would create an empty database."""
    if any(name.startswith("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") for name in os.environ):
        return True
    return (Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "airflow.cfg").is_file()
