"""The driver is loaded once, whichever threads need it first."""

from __future__ import annotations

import subprocess
import sys

_TWO_THREADS = """
import sys, threading, time
from floodmark.sources.sqlserver import driver

importing = threading.Event()

class SlowImport:
    def find_spec(self, name, path=None, target=None):
        if name == "mssql_python.pooling":
            importing.set()
            time.sleep(0.3)

sys.meta_path.insert(0, SlowImport())
found = []
threads = [threading.Thread(target=lambda: found.append(driver._load_driver())) for _ in range(2)]
threads[0].start()
assert importing.wait(30)
threads[1].start()
for thread in threads:
    thread.join()
assert len(found) == 2
print([each is sys.modules["mssql_python"] for each in found])
"""


def test_threads_that_load_the_driver_together_get_the_same_one() -> None:
    """mssql-python replaces its own module at the end of its import.

    A thread that imports it meanwhile gets the first one, where the choice of a provider has no effect. Its connection
    would load the default provider for the whole process, also where that cannot be loaded.
    """
    done = subprocess.run(
        [sys.executable, "-c", _TWO_THREADS], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout == "[True, True]\n", done.stderr
