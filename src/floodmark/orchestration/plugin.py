"""Floodmark's plugin, which Airflow finds by the entry point ``airflow.plugins`` of the package.

It imports what the DAG files and their assets need. Airflow's scheduler and DAG processor load plugins when they
start, before they fork: the processes of tasks (with the LocalExecutor) and of parses then have these modules already,
which is most of the time of a parse of few pipelines.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

import floodmark.orchestration.asset_lineage
import floodmark.orchestration.dags  # noqa: F401  (see above)
from floodmark.orchestration import pools
from floodmark.orchestration.pages.routes import PAGES_PREFIX, STATUS_PATH, external_views, status_app
from floodmark.sources.kind import KINDS, find_kind

for _kind in KINDS:
    find_kind(_kind)  # its module; a driver is imported where it is used


class FloodmarkPlugin(AirflowPlugin):  # type: ignore[misc]
    """The status pages, links to data docs, and the listener that explains a missing pool."""

    name = "floodmark"
    external_views = external_views(STATUS_PATH)
    fastapi_apps = [{"app": status_app, "url_prefix": PAGES_PREFIX, "name": "Floodmark"}]  # noqa: RUF012
    listeners = [pools]  # noqa: RUF012  (as Airflow's class has it)
