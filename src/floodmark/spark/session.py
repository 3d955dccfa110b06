"""The Spark session of a load."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from floodmark.spark.data_source import BATCH_ROWS, SqlServerCdc
from floodmark.spark.java import find_java_home

_SETTINGS = {
    # Columns of a case-sensitive source may differ in case alone.
    "spark.sql.caseSensitive": "true",
    # Moments pass through as microseconds of UTC; no zone of this machine may touch them.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    # Adaptive execution joins them again where a window is small.
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.adaptive.enabled": "true",
}


def open_session(application: str) -> SparkSession:
    """The session of spark-submit with our settings; without spark-submit, a local one on all cores."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java_home = find_java_home()
    if java_home:
        os.environ["JAVA_HOME"] = java_home
    builder = SparkSession.builder.appName(application)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(SqlServerCdc)
    return session
