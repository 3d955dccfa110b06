"""The entry point of the load of one window, for Python, which starts Spark where it is needed, and for spark-submit.

All of it is in ``floodmark.spark.job``.
"""

import logging
import os
import sys

from floodmark.core.settings import REMOTE_VARIABLE
from floodmark.spark.engine import OpeningEngine
from floodmark.spark.launch.command import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    # What it reports as an error it raises as well, without a stack trace.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if REMOTE_VARIABLE in os.environ:
        from floodmark.spark.connect import open_connect_engine, stop_on_termination

        opening = OpeningEngine(open_connect_engine)
        stop_on_termination(opening)
    else:
        from floodmark.spark.engine import open_job_engine

        opening = OpeningEngine(open_job_engine)
    from floodmark.spark.job import main

    status = main(opening)
    opening.stop()
    raise SystemExit(status)
