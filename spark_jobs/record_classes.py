"""spark-submit's entry point that uses the classes of a load: the start of its session, and jobs of both kinds."""

from floodmark.spark.engine import open_classic_engine
from floodmark.spark.launch.command import end_with_parent
from floodmark.spark.stage import run_both_kinds

if __name__ == "__main__":
    end_with_parent()
    engine = open_classic_engine()
    run_both_kinds(engine.session)
    engine.stop()
