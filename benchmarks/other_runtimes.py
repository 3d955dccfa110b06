"""Clients that live in other runtimes, each measured in a process of its own: mssql-jdbc below Spark, node's tedious.

``python -m benchmarks.other_runtimes jdbc``: the address as JSON on standard input, rows and seconds as JSON on the
last line of standard output. Connecting and starting are left out of the seconds, as for the other clients.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.drivers import Address
from floodmark.spark.launch.target import java_environment

_HERE = Path(__file__).parent
_NODE_FOLDER = _HERE.parent / "emulator" / "tests" / "clients_external" / "node"
_JDBC = "com.microsoft.sqlserver:mssql-jdbc:12.10.1.jre11"
_MOST_SECONDS = 600


def read_by_jdbc(address: Address, database: str, statement: str) -> float:
    """Seconds. Raises OSError or subprocess.SubprocessError where it cannot run."""
    return _measure([sys.executable, "-m", "benchmarks.other_runtimes", "jdbc"], address, database, statement)


def read_by_tedious(address: Address, database: str, statement: str) -> float:
    """Seconds. Raises OSError or subprocess.SubprocessError where ``make test-clients`` has not set node up."""
    node = shutil.which("node")
    if node is None or not (_NODE_FOLDER / "node_modules").is_dir():
        raise FileNotFoundError("make test-clients sets up node and tedious")
    return _measure([node, str(_HERE / "tedious.mjs")], address, database, statement)


def _measure(command: list[str], address: Address, database: str, statement: str) -> float:
    reported = {
        "host": address.host,
        "port": address.port,
        "user": address.user,
        "password": address.password,
        "ca": str(address.ca_file),
        "database": database,
        "statement": statement,
        "modules": str(_NODE_FOLDER),
    }
    done = subprocess.run(
        command,
        input=json.dumps(reported),
        capture_output=True,
        text=True,
        check=True,
        timeout=_MOST_SECONDS,
        cwd=_HERE.parent,
    )
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def _jdbc(reported: dict[str, Any]) -> float:
    """A scan that Spark throws away. The first one pays for compiling and connecting, so the second is measured."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.update(java_environment())
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--master local[1] --packages {_JDBC} --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1"
        " --conf spark.log.level=ERROR pyspark-shell"
    )
    session = SparkSession.builder.getOrCreate()
    try:
        frame = (
            session.read.format("jdbc")
            .options(
                driver="com.microsoft.sqlserver.jdbc.SQLServerDriver",
                url=f"jdbc:sqlserver://{reported['host']}:{reported['port']}",
                user=reported["user"],
                password=reported["password"],
                databaseName=reported["database"],
                encrypt="true",
                trustServerCertificate="true",
                fetchsize="8192",
                query=reported["statement"],
            )
            .load()
        )
        frame.limit(1000).write.format("noop").mode("overwrite").save()
        begun = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - begun
    finally:
        session.stop()


if __name__ == "__main__":
    print(json.dumps({"seconds": _jdbc(json.load(sys.stdin))}))
