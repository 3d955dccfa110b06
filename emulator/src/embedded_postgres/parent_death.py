"""A child process that the kernel ends when its parent ends (Linux; elsewhere the child is on its own)."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals) -> None:
    """For the child, before exec, and after it has taken its user: a change of credentials clears it (prctl(2))."""
    if sys.platform == "linux":
        prctl: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
        prctl(_PR_SET_PDEATHSIG, number)
