"""An application of Spark with a Spark Connect server, which does not use Floodmark."""

import signal

from pyspark.sql import SparkSession

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    session = SparkSession.builder.getOrCreate()
    port = session.conf.get("spark.connect.grpc.binding.port")
    print(f"Loads can connect to sc://127.0.0.1:{port}.", flush=True)
    signal.pause()
