"""Registers Floodmark with Airflow."""

from airflow.plugins_manager import AirflowPlugin

from floodmark.console.airflow_views import external_views


class FloodmarkPlugin(AirflowPlugin):
    name = "floodmark"
    external_views = external_views()
