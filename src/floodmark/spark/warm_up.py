"""Jobs that use the classes of a load, with nothing to do."""

from __future__ import annotations

from pyspark.sql import SparkSession

from floodmark.spark.net import PACKED_SCHEMA, gather_changes
from floodmark.spark.stage import run_tasks


def run_both_kinds(session: SparkSession) -> None:
    """Run a job without a shuffle and one with it."""
    rows = run_tasks(session, [(), ()], iter, PACKED_SCHEMA)
    rows.collect()
    gather_changes(rows).collect()
