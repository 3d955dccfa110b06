"""spark-submit's entry point for the load of one window. All of it is in ``floodmark.spark.job``."""

from floodmark.spark.job import main

if __name__ == "__main__":
    raise SystemExit(main())
