"""A process that was started with ``end_with_starter`` does not outlive its starter."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

STARTER = """
import subprocess, sys
from floodmark.orchestration.load_process import end_with_starter

# As spark-submit does: a shell script that becomes the program.
child = subprocess.Popen(["sh", "-c", "exec sleep 600"], process_group=0, preexec_fn=end_with_starter())
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does it on Linux only")
def test_a_load_ends_when_who_started_it_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        load = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    _, alive = psutil.wait_procs([load], timeout=10)
    assert not alive
