"""The common parts of all commands: options, errors as one message and an exit status, and a plain log."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer
from rich.console import Console

from floodmark.app.metrics import AirflowMetrics
from floodmark.app.pipeline import App, config_path
from floodmark.cli.tables import print_line, wrap_words
from floodmark.config.loading import load_config
from floodmark.core.errors import ConfigError, FloodmarkError
from floodmark.sync.ports import LoggedProgress, Progress

EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_TRY_AGAIN = 75
out = Console(soft_wrap=False)
"""The console for results."""
_err = Console(stderr=True, soft_wrap=True, highlight=False)

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
        print_line(_err, f"floodmark: {error.in_full}")
        if isinstance(error, ConfigError):
            raise typer.Exit(EXIT_CONFIG) from None
        raise typer.Exit(EXIT_TRY_AGAIN if error.retryable else EXIT_FAILED) from None


class _LogHandler(logging.StreamHandler[TextIO]):
    """The log on standard error: one line for each message, wrapped between words on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "\n".join(wrap_words(text, _err.width)) if self.stream.isatty() else text


def log_plainly() -> None:
    """Log only our own messages, to standard error. Airflow would write its warnings to standard output."""
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    handler = _LogHandler(sys.stderr)
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
