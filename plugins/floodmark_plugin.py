"""Registers Floodmark with Airflow."""

from airflow.plugins_manager import AirflowPlugin

from floodmark.console.airflow_views import external_views
from floodmark.orchestration import pools


class FloodmarkPlugin(AirflowPlugin):
    name = "floodmark"
    external_views = external_views()
    listeners = [pools]  # noqa: RUF012  (as Airflow's class has it)
