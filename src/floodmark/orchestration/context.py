"""The ``AppContext`` of a task: notes in an Airflow variable, metrics by Airflow."""

from __future__ import annotations

from pathlib import Path

from floodmark.app.context import AppContext
from floodmark.config.loading import load_config
from floodmark.config.models import Config
from floodmark.orchestration.alert_notes import VariableNotes
from floodmark.wiring.metrics import AirflowMetrics


def open_app(config_path: Path | str, *, parse_rules: bool = True) -> AppContext:
    """Return the context of a task. parse_rules: see ``load_config``. Raises ConfigError."""
    return app_of(load_config(config_path, parse_rules=parse_rules))


def app_of(config: Config) -> AppContext:
    """Return the context over a configuration that has been read."""
    return AppContext(config, VariableNotes(), AirflowMetrics())
