"""Every DAG of the configuration, for one file in a DAGs folder.

::

    # Airflow reads this file, because it holds the words Airflow and DAG.
    from floodmark.dags import *

The configuration is read at each such import, and not kept: a process that reads its DAG files again has them as the
configuration is then. In the process of a task there is only the DAG of the task.

Raises ConfigError where the configuration is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.config.loading import load_config
from floodmark.orchestration.dags.every import build_every_dag
from floodmark.wiring.places import config_path

if TYPE_CHECKING:
    from airflow.sdk import DAG

_built: dict[str, DAG] = {}


def __getattr__(name: str) -> object:
    """Return what ``import *`` asks for: the list of names, which builds the DAGs, and then each DAG by its id."""
    if name == "__all__":
        path = config_path()
        _built.clear()
        _built.update(build_every_dag(load_config(path, parse_rules=False), path))
        return sorted(_built)
    if name in _built:
        return _built[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
