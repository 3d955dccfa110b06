"""The errors that a call to Airflow's API server raises. They belong to two families without a common base class; the
second one is raised when the server itself fails."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException, AirflowRuntimeError

AIRFLOW_ERRORS = (AirflowException, AirflowRuntimeError)
