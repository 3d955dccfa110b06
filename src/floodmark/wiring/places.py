"""Where the configuration and the data docs are: what the environment says, and the defaults."""

from __future__ import annotations

import os
from pathlib import Path

import floodmark

CONFIG_VARIABLE = "FLOODMARK_CONFIG"
DATA_DOCS_VARIABLE = "FLOODMARK_DATA_DOCS"
_DEFAULT_CONFIG = Path("include", "pipelines.yaml")


def config_path() -> Path:
    """Return what FLOODMARK_CONFIG names, else ``include/pipelines.yaml``: that of the clone this package is installed
    from, or, where it was installed from a wheel, that of the working directory."""
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen:
        return Path(chosen).resolve()
    of_clone = Path(floodmark.__file__).resolve().parents[2] / _DEFAULT_CONFIG
    return of_clone if of_clone.is_file() else _DEFAULT_CONFIG.resolve()


def data_docs_dir() -> Path:
    """Return what FLOODMARK_DATA_DOCS names, else a folder of the user's state."""
    chosen = os.environ.get(DATA_DOCS_VARIABLE)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(chosen).resolve() if chosen else Path(state) / "floodmark" / "data_docs"
