"""The entry point of the load of one window, for Python, which starts Spark where it is needed, and for spark-submit.

All of it is in ``floodmark.spark.job``.
"""

import logging
import os
import sys

from floodmark.core.settings import REMOTE_VARIABLE
from floodmark.spark.engine import Engine, OpeningEngine, open_job_engine, stop_on_termination
from floodmark.spark.launch.command import end_with_parent


def open_remote_engine() -> Engine:
    """Return the engine at the Spark Connect server that the environment names."""
    # The modules of the client take a second, and few changes need no Spark.
    from floodmark.spark.connect import open_connect_engine  # noqa: PLC0415

    return open_connect_engine()


if __name__ == "__main__":
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    # What it reports as an error it raises as well, without a stack trace.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    is_remote = REMOTE_VARIABLE in os.environ
    opening = OpeningEngine(open_remote_engine if is_remote else open_job_engine)
    if is_remote:
        stop_on_termination(opening)
    from floodmark.spark.job import main

    status = main(opening)
    opening.stop()
    raise SystemExit(status)
