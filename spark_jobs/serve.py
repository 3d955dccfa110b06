"""spark-submit's entry point of a resident Spark: a session that loads reach by Spark Connect, until a signal comes."""

import logging
import signal
import sys

from floodmark.spark.engine import open_classic_engine, silence
from floodmark.spark.launch.command import end_with_parent
from floodmark.spark.launch.processes import ADDRESS_SETTING, CLIENT_ERRORS, PORT_SETTING
from floodmark.spark.stage import run_both_kinds

if __name__ == "__main__":
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    signals = (signal.SIGTERM, signal.SIGINT)
    engine = open_classic_engine()
    silence(engine.session, [CLIENT_ERRORS])
    run_both_kinds(engine.session)
    address, port = (engine.session.conf.get(name) for name in (ADDRESS_SETTING, PORT_SETTING))
    logging.info("Loads can connect to sc://%s:%s.", address, port)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.sigwait(signals)
    engine.stop()
