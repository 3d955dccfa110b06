"""What a call to Airflow's API server raises: errors of two families that have nothing in common. The second one comes
when the server itself fails."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException, AirflowRuntimeError

AIRFLOW_ERRORS = (AirflowException, AirflowRuntimeError)
