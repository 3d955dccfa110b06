"""spark-submit's entry point for the load of one window. All of it is in ``floodmark.spark.job``."""

import logging
import sys

from floodmark.spark.launch.parent_death import end_with_parent
from floodmark.spark.session import OpeningSession

if __name__ == "__main__":
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    opening = OpeningSession()
    # These imports take as long as Java needs for the session.
    from floodmark.spark.job import main

    status = main(opening)
    opening.stop()
    raise SystemExit(status)
