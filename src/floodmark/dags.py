"""Every DAG of the configuration, for one file in a DAGs folder.

::

    # Airflow reads this file, because it holds the words Airflow and DAG.
    from floodmark.dags import *

Each such import reads the configuration again: a process that reads its DAG files twice has the DAGs as the
configuration is then. In the process of a task there is only the DAG of the task.

``FloodmarkTaskGroup`` puts the run of a pipeline into a DAG of your own.

Raises ConfigError where the configuration is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.app.pipeline import config_path
from floodmark.config.loading import load_config
from floodmark.core.errors import FloodmarkBugError
from floodmark.orchestration.dags import build_every_dag
from floodmark.orchestration.dags.pipelines import FloodmarkTaskGroup  # noqa: F401  (for other DAG files)

if TYPE_CHECKING:
    from airflow.sdk import DAG

_built: dict[str, DAG] = {}


def __getattr__(name: str) -> object:
    """Return what ``import *`` asks for: the list of names, which builds the DAGs, and then each DAG by its id."""
    if name == "__all__":
        path = config_path()
        _built.clear()
        try:
            _built.update(build_every_dag(load_config(path, parse_rules=False), path))
        except AttributeError as error:
            # Python would take it for a module without __all__: the file would have no DAG, and no import error.
            raise FloodmarkBugError(str(path), f"the DAGs could not be built: {error}.") from error
        return sorted(_built)
    if name in _built:
        return _built[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
