"""A load ends with who started it, also when that was killed with -9 and could tell nobody: by the kernel (Linux).

Otherwise it goes on without anybody who listens. That harms no row, but the tries that follow find another load at
work, until they are used up: and a first load may take hours. Task, spark-submit's JVM and the driver's Python are a
chain, so the JVM is bound to the task and the driver to the JVM.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def end_with_starter() -> Callable[[], None] | None:
    """For ``preexec_fn`` of a process that the present thread is about to start; it hands on through exec. None where
    the kernel has no such thing."""
    if sys.platform != "linux":
        return None
    # Looked up before the fork: in the child, locks that another thread held then are never given back.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    starter = os.getpid()

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != starter:
            # It died in between, and no signal comes any more.
            os._exit(1)

    return arrange


def end_with_parent() -> None:
    """For a process that was started by somebody else's code."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
