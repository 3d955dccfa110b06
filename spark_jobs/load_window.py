"""spark-submit's entry point for the load of one window. All of it is in ``floodmark.spark.job``."""

from floodmark.spark.job import main
from floodmark.spark.launch.parent_death import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    raise SystemExit(main())
