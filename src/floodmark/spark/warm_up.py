"""Jobs that use the classes of a load, with nothing to do."""

from __future__ import annotations

from pyspark.sql import SparkSession

from floodmark.spark.net import gather_changes
from floodmark.spark.packing import PACKED_SCHEMA
from floodmark.spark.run_tasks import run_tasks


def run_both_kinds(session: SparkSession) -> None:
    """Run a job without a shuffle and one with it."""
    rows = run_tasks(session, [(), ()], iter, PACKED_SCHEMA)
    rows.collect()
    gather_changes(rows).collect()
