"""Imports what the DAG files need, once.

Airflow's scheduler and DAG processor load plugins when they start, before they fork. The processes of tasks (with the
LocalExecutor) and of parses then have these modules already, which is most of the time of a parse of few pipelines.
"""

import floodmark.orchestration.dags.capture
import floodmark.orchestration.dags.cdc
import floodmark.orchestration.dags.drift
import floodmark.orchestration.dags.load
import floodmark.orchestration.dags.retention  # noqa: F401
