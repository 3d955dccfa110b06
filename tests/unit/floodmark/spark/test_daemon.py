"""The process that Spark forks its Python workers from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from socket import socket, socketpair

import pytest

from floodmark.spark.daemon import ending_with_spark, list_needless_archives

_ON_EXECUTORS = (
    "adbc_driver_manager adbc_driver_postgresql compact_tracking floodmark numpy psutil psycopg psycopg_binary pyarrow"
)
_OF_THESE = "cython_runtime typing_extensions py4j pyspark"
_IMPORT = """
import sys
class Others:
    def find_spec(self, name, path, target=None):
        root = name.partition(".")[0]
        if root not in {*sys.argv[1:], *sys.stdlib_module_names} and not root.startswith("_"):
            raise ModuleNotFoundError(f"{root} is not on executors", name=name)
sys.meta_path.insert(0, Others())
import floodmark.spark.tasks
"""


def test_archives_of_spark_are_needless_where_they_are_part_of_the_package_on_the_path(tmp_path: Path) -> None:
    packages, other = tmp_path / "site-packages", tmp_path / "opt" / "spark"
    (packages / "pyspark").mkdir(parents=True)
    (packages / "pyspark" / "__init__.py").touch()
    own = [str(packages / "pyspark" / each) for each in ("python/lib/pyspark.zip", "jars/spark-core.jar")]
    # A Spark of its own may be of another version, and a zip of the user may have what no folder has.
    kept = [str(other / "python/lib/pyspark.zip"), str(tmp_path / "job.zip"), str(packages), ""]
    assert list_needless_archives([*own, *kept]) == own
    assert list_needless_archives([*own, *kept[:2]]) == []


def test_worker_whose_spark_is_gone_ends_without_a_stack_trace() -> None:
    here, there = socketpair()
    there.close()

    def work(connection: socket, authenticated: bool) -> int:
        connection.sendall(b"rows")
        return 0

    with here:
        assert ending_with_spark(work)(here, True) == 1


def test_other_errors_of_a_worker_are_raised_and_its_status_is_kept() -> None:
    def broken(connection: socket, authenticated: bool) -> int:
        raise ValueError("a bug")

    with socket() as connection:
        with pytest.raises(ValueError, match="a bug"):
            ending_with_spark(broken)(connection, True)
        assert ending_with_spark(lambda _connection, _authenticated: 7)(connection, False) == 7


def test_tasks_import_no_package_that_executors_may_lack() -> None:
    allowed = [*_ON_EXECUTORS.split(), *_OF_THESE.split()]
    done = subprocess.run([sys.executable, "-c", _IMPORT, *allowed], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
