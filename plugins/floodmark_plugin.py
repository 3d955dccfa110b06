"""Registers Floodmark with Airflow."""

from airflow.plugins_manager import AirflowPlugin

from floodmark.orchestration import pools
from floodmark.orchestration.pages.status import STATUS_PATH, status_app
from floodmark.orchestration.pages.views import PAGES_PREFIX, external_views


class FloodmarkPlugin(AirflowPlugin):
    name = "floodmark"
    external_views = external_views(STATUS_PATH)
    fastapi_apps = [{"app": status_app, "url_prefix": PAGES_PREFIX, "name": "Floodmark"}]  # noqa: RUF012
    listeners = [pools]  # noqa: RUF012  (as Airflow's class has it)
