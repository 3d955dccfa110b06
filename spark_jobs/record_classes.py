"""spark-submit's entry point that uses the classes of a load: the start of its session, and a job without a shuffle."""

from floodmark.sources.cdc.rows.change_reader import open_cdc_reader
from floodmark.spark.data_source import table_rows
from floodmark.spark.launch.parent_death import end_with_parent
from floodmark.spark.session import open_spark_session

if __name__ == "__main__":
    end_with_parent()
    session = open_spark_session("floodmark class archive", table_rows(open_cdc_reader))
    session.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
    session.stop()
