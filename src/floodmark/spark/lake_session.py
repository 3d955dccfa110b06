"""The local Spark of a step that is no load job: checks, comparisons and upkeep of a lake."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryFile

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from floodmark.core.errors import LoadStartError
from floodmark.spark.engine import open_classic_engine
from floodmark.spark.launch.command import job_environment, job_settings
from floodmark.spark.launch.jars import lake_environment
from floodmark.spark.launch.target import SparkTarget


class LakeSpark:
    """A local Spark, which is started when it is first needed.

    read_target: returns where loads run. Its properties count here as well, such as the memory of the driver. s3: the
    tables are in a bucket.
    """

    def __init__(self, read_target: Callable[[], SparkTarget], *, s3: bool) -> None:
        self._read_target = read_target
        self._s3 = s3
        self._session: SparkSession | None = None

    def open(self) -> SparkSession:
        """Return the session. Raises ConfigError for missing jars or a wrong connection, or LoadStartError."""
        if self._session is None:
            found = self._read_target()
            # A load on other machines is refused by itself, and needs no properties here.
            target = found if found.is_local else SparkTarget()
            os.environ.update(job_environment(lake_environment(s3=self._s3), target))
            settings = job_settings(target) | {"spark.master": target.master, "spark.log.level": "ERROR"}
            # What Java says at its start is for developers: it is shown where it does not start.
            with TemporaryFile() as output:
                try:
                    self._session = open_classic_engine(settings, output).session
                except PySparkException as error:
                    output.seek(0)
                    said = output.read().decode("utf-8", "replace")
                    raise LoadStartError("Spark", "it did not start.", "", f"{error} {said}") from None
        return self._session

    def close(self) -> None:
        """End the session. The next ``open`` begins another."""
        if self._session is not None:
            # Java may have been killed, which the caller knows by its own error.
            with suppress(Py4JError, ConnectionError):
                self._session.stop()
            self._session = None
