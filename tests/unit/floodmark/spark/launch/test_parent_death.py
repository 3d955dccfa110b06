"""A load does not outlive its task: neither spark-submit nor the driver that it starts."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

DRIVER = """
import time
from floodmark.spark.launch.command import end_with_parent

end_with_parent()
print("up", flush=True)
time.sleep(600)
"""
# As spark-submit does: a shell script that becomes the program.
SUBMIT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
child.wait()
"""
TASK = """
import subprocess, sys
from floodmark.spark.launch.command import end_with_starter

command = ["sh", "-c", 'exec "$@"', "sh", sys.executable, "-c", *sys.argv[1:]]
subprocess.Popen(command, process_group=0, preexec_fn=end_with_starter()).wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does it on Linux only")
def test_a_load_ends_when_its_task_is_killed() -> None:
    command = [sys.executable, "-c", TASK, SUBMIT, DRIVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as task:
        assert task.stdout is not None
        assert task.stdout.readline() == "up\n"
        load = psutil.Process(task.pid).children(recursive=True)
        assert len(load) == 2
        task.kill()
        _, alive = psutil.wait_procs(load, timeout=10)
        for process in alive:
            process.kill()
    assert not alive
