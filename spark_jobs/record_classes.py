"""spark-submit's entry point that uses the classes of a load: the start of its session, and jobs of both kinds."""

from floodmark.spark.launch.parent_death import end_with_parent
from floodmark.spark.session import open_classic_engine
from floodmark.spark.warm_up import run_both_kinds

if __name__ == "__main__":
    end_with_parent()
    engine = open_classic_engine()
    run_both_kinds(engine.session)
    engine.stop()
