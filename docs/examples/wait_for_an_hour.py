"""An Airflow DAG that waits until the warehouse has all changes of an hour, and works on that hour then.

``to_lsn_at`` is the commit time of the end of a window, in the time of the server; both are UTC here.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.sdk import DAG, CronDataIntervalTimetable, task

IS_COMPLETE = """
SELECT count(*) FROM floodmark.windows
WHERE pipeline = 'shop' AND lane = '' AND state = 'advanced' AND to_lsn_at >= '{{ data_interval_end | ts_nodash }}'
"""

with DAG(
    "orders_of_the_hour",
    schedule=CronDataIntervalTimetable("@hourly", timezone="UTC"),
    start_date=datetime(2026, 1, 1),
    catchup=False,
):
    wait = SqlSensor(
        task_id="wait",
        conn_id="warehouse",
        sql=IS_COMPLETE,
        mode="reschedule",
        poke_interval=60,
        timeout=timedelta(hours=6).total_seconds(),
    )

    @task
    def summarize(data_interval_start: datetime, data_interval_end: datetime) -> None:
        print(f"The orders from {data_interval_start} to {data_interval_end} are complete.")

    wait >> summarize()
