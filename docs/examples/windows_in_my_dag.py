"""An Airflow DAG of your own that loads a pipeline, and continues where it has brought rows.

The tasks after the group are skipped when there was nothing to read. With ``trigger_rule="none_failed"`` they run all
the same. Pause Floodmark's DAG ``cdc_shop``, or give the pipeline no schedule.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, task

from floodmark.dags import FloodmarkTaskGroup

with DAG("nightly_orders", schedule="0 3 * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):

    @task
    def refresh_report() -> None:
        print("The orders up to this night are in the warehouse.")

    FloodmarkTaskGroup("shop", default_args={"retry_delay": timedelta(minutes=1)}) >> refresh_report()
