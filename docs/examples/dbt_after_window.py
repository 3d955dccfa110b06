"""An Airflow DAG that runs dbt after each window in which both tables were published.

The assets are those of Floodmark's DAG ``cdc_shop``: ``floodmark://PIPELINE/SCHEMA/TABLE`` for each target.
"""

from __future__ import annotations

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset

TABLES = [Asset.ref(uri=f"floodmark://shop/shop/{table}") for table in ("orders", "order_lines")]

with DAG("dbt_orders", schedule=TABLES, catchup=False, max_active_runs=1, tags=["dbt"]):
    BashOperator(task_id="dbt", bash_command="dbt build --select +orders_by_day")
