"""What the process of every command has in common: errors as one message and an exit status, and a plain log."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console

from floodmark.core.errors import ConfigError, FloodmarkError

EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_TRY_AGAIN = 75
_err = Console(stderr=True, soft_wrap=True, highlight=False)


@contextmanager
def explained() -> Iterator[None]:
    """Turn our errors into one message and an exit status."""
    try:
        yield
    except FloodmarkError as error:
        _err.print(f"floodmark: {error.in_full}", markup=False)
        if isinstance(error, ConfigError):
            raise typer.Exit(EXIT_CONFIG) from None
        raise typer.Exit(EXIT_TRY_AGAIN if error.retryable else EXIT_FAILED) from None


def log_plainly() -> None:
    """Our own words only, on standard error. Airflow, once imported, would write its warnings to standard output."""
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    own = logging.getLogger("floodmark")
    own.addHandler(handler)
    own.setLevel(logging.INFO)
    own.propagate = False


def has_airflow_database() -> bool:
    """Whether there is an Airflow here: asking one that is not there would make an empty database for it."""
    if any(name.startswith("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") for name in os.environ):
        return True
    return (Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "airflow.cfg").is_file()
