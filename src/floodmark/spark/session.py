"""The Spark session of a load, with its workers started and its classes loaded.

Half of the time of a small load is Spark's start: Python processes import modules, Java loads classes and generates
code. ``open_spark_session`` does this work in parallel, on all cores.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from floodmark.spark.data_source import TableRows
from floodmark.spark.launch.java import java_environment
from floodmark.spark.net import gather_changes
from floodmark.spark.packing import PACKED_SCHEMA

_LOG = logging.getLogger(__name__)
_SETTINGS = {
    "spark.python.daemon.module": "floodmark.spark.daemon",
    # Columns of a case-sensitive source may differ in case alone.
    "spark.sql.caseSensitive": "true",
    # Moments are microseconds of UTC; the machine's time zone must not change them.
    "spark.sql.session.timeZone": "UTC",
    # One record is a whole batch of rows (see packing).
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
    # Many parts, coalesced to this size: the memory of a task does not depend on the size of the window.
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
}
_REPEATED = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
"""Loggers that print the stack trace of a failed task. The driver gets it as an exception and logs one message."""
_GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""The variable that spark-submit sets, whose Java runs already."""
_WARM_UP_ROWS = (
    "SELECT CAST(id AS int) AS bucket, 1 AS source_rows, CAST('rows' AS binary) AS rows FROM range(0, 2, 1, 2)"
)


def open_spark_session(application: str, rows: type[TableRows]) -> SparkSession:
    """Return the session of spark-submit with Floodmark's settings; without spark-submit, a local one on all cores.

    rows: the data source to register.
    """
    began = time.monotonic()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _GATEWAY_VARIABLE not in os.environ:
        os.environ.update(java_environment())
    builder = SparkSession.builder.appName(application)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    _silence(session, _REPEATED)
    session.dataSource.register(rows)
    # On a cluster the executors are still starting, and what warms up there is not what the tasks run on.
    if session.sparkContext.master.startswith("local"):
        _warm_up(session)
    java = session.sparkContext._jvm.java.lang.System
    _LOG.info(
        "Spark %s on %s is up after %.1f s. Its Java is %s in %s.",
        session.version,
        session.sparkContext.master,
        time.monotonic() - began,
        java.getProperty("java.version"),
        java.getProperty("java.home"),
    )
    return session


def _silence(session: SparkSession, loggers: Sequence[str]) -> None:
    jvm = session.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    for name in loggers:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


class WarmUp(DataSource):  # type: ignore[misc]
    """Two rows whose read makes Spark start the workers of Python data sources."""

    @classmethod
    def name(cls) -> str:
        return "floodmark_warm_up"

    def schema(self) -> str:
        return "id bigint"

    def reader(self, schema: object) -> DataSourceReader:
        return _WarmUpReader()


class _WarmUpReader(DataSourceReader):  # type: ignore[misc]
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.nulls(1, pa.int64())], names=["id"])


def _warm_up(session: SparkSession) -> None:
    """Run small queries. A failure is only logged: the load fails for the same reason and reports it."""
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(task, session) for task in (_warm_up_read, _warm_up_sort)]
    for error in (future.exception() for future in futures):
        if error is not None:
            _LOG.warning("Could not warm up Spark: %s", str(error).partition("\n")[0])


def _warm_up_read(session: SparkSession) -> None:
    session.dataSource.register(WarmUp)
    session.read.format(WarmUp.name()).load().write.format("noop").mode("overwrite").save()


def _warm_up_sort(session: SparkSession) -> None:
    rows = gather_changes(session.sql(_WARM_UP_ROWS))
    rows.mapInArrow(_pass_through, PACKED_SCHEMA).write.format("noop").mode("overwrite").save()


def _pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
