"""A load ends with the process that started it, also when that was killed with -9: the kernel sees to it (Linux).

Otherwise it would go on alone. That harms no row, but the tries that follow find another load at work, until they are
used up, and a first load may take hours. Task, spark-submit's JVM and the driver's Python are a
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
    """Return the ``preexec_fn`` of a process that this thread is about to start; it survives exec.

    None where the kernel has no such thing.
    """
    if sys.platform != "linux":
        return None
    # Resolved before the fork: in the child, locks that another thread held then are never given back.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    starter = os.getpid()

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != starter:
            # It died in between, and no signal will come.
            os._exit(1)

    return arrange


def end_with_parent() -> None:
    """Let this process end with its parent, where other code has started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
