"""Spark in a Java of the test's own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from floodmark.spark.engine import Engine, open_classic_engine
from floodmark.spark.stager import SparkStager

SUPPORT = str(Path(__file__).parent)
SUBMIT_ARGUMENTS = (
    "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1"
    " --conf spark.ui.showConsoleProgress=false --conf spark.log.level=ERROR"
    " --driver-java-options '-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m' pyspark-shell"
)

stager_of_spark = partial(SparkStager, driver_changes=0)
"""A stager that leaves few changes to Spark as well."""


@contextmanager
def classic_engine() -> Iterator[Engine]:
    """Yield a local engine of two cores, whose workers can import the helpers of the tests.

    The session is stopped in Python too. The next tests of this process would otherwise be given it without its Java.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SUPPORT)
        patch.setenv("PYSPARK_SUBMIT_ARGS", SUBMIT_ARGUMENTS)
        engine = open_classic_engine()
        yield engine
        engine.session.stop()
