"""The modules that tasks on executors import. They need no package of the driver: no Airflow, no sqlglot.

A fleet's reader is imported when a task has one: only loads of fleets need its package.

``daemon`` imports this once, before Spark forks the workers. ``docs/cluster.md`` lists the packages.
"""

from floodmark.postgres.warehouse.sink import PostgresSink
from floodmark.sources.cdc.reader import open_cdc_reader
from floodmark.sources.change_tracking.reader import open_tracking_reader
from floodmark.spark.stage import StageWriter, run_tasks

__all__ = [
    "PostgresSink",
    "StageWriter",
    "open_cdc_reader",
    "open_tracking_reader",
    "run_tasks",
]
