"""The identity of a process, to find transactions that a killed process left open.

A wrong answer costs no correctness: a transaction whose entry was removed while it lives notices at its first write,
and has to begin again; one whose entry stays makes the sequence table grow. So processes of other machines and
containers, and of systems without /proc, are only given up by age.
"""

import os
from pathlib import Path

_PROC = Path("/proc")


def identify_process(pid: int | None = None) -> str:
    """Return a text that no other process has: boot, namespace of process numbers, number, start; "" if unknown."""
    pid = os.getpid() if pid is None else pid
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink(_PROC / "self/ns/pid")  # noqa: PTH115 - the target is no path
        # The name of the program is in parentheses and may hold blanks; the start is the 20th field after it.
        status = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        started = status.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{boot} {namespace} {pid} {started}"


def is_dead(identity: str) -> bool:
    """Return whether a process surely no longer runs; False where this cannot be known."""
    own, parts = identify_process().split(" "), identity.split(" ")
    if len(own) != 4 or len(parts) != 4 or parts[:2] != own[:2] or not parts[2].isdecimal():
        return False
    found = identify_process(int(parts[2]))
    return found != identity if found else _is_gone(int(parts[2]))


def _is_gone(pid: int) -> bool:
    """Return whether a process whose status cannot be read is gone; some systems hide those of other users."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
