"""The locations of the configuration and the data docs, from the environment or by default."""

from __future__ import annotations

import os
from pathlib import Path

import floodmark

CONFIG_VARIABLE = "FLOODMARK_CONFIG"
DATA_DOCS_VARIABLE = "FLOODMARK_DATA_DOCS"
_DEFAULT_CONFIG = Path("include", "pipelines.yaml")


def config_path() -> Path:
    """Return the path in FLOODMARK_CONFIG, else ``include/pipelines.yaml``.

    The default is that of the clone from which this package is installed; for a wheel, that of the working directory.
    """
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen:
        return Path(chosen).resolve()
    of_clone = Path(floodmark.__file__).resolve().parents[2] / _DEFAULT_CONFIG
    return of_clone if of_clone.is_file() else _DEFAULT_CONFIG.resolve()


def data_docs_dir() -> Path:
    """Return the path in FLOODMARK_DATA_DOCS, else a folder of the user's state."""
    chosen = os.environ.get(DATA_DOCS_VARIABLE)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(chosen).resolve() if chosen else Path(state) / "floodmark" / "data_docs"
