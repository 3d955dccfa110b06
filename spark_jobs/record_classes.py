"""spark-submit's entry point that uses the classes of a load: the start of its session, and jobs of both kinds."""

from floodmark.spark.launch.parent_death import end_with_parent
from floodmark.spark.net import gather_changes
from floodmark.spark.packing import PACKED_SCHEMA
from floodmark.spark.run_tasks import run_tasks
from floodmark.spark.session import OpeningSession

if __name__ == "__main__":
    end_with_parent()
    opening = OpeningSession()
    rows = run_tasks(opening.get(), [(), ()], iter, PACKED_SCHEMA)
    rows.collect()
    gather_changes(rows).collect()
    opening.stop()
