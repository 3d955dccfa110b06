"""Terminals: a real one for a program, with what it writes and its exit status, and a file that passes for one."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import termios
from collections.abc import Mapping, Sequence


class FakeTerminal(io.StringIO):
    """A file that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def run_on_terminal(
    command: Sequence[str], environment: Mapping[str, str], *, columns: int, lines: int = 24, seconds: float = 120
) -> tuple[int, str]:
    """Run a program whose input, output and errors are one terminal. Return its exit status and what it has written."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (lines, columns))
    process = subprocess.Popen(
        command, env=dict(environment), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    written = bytearray()
    # The end of a pseudo-terminal whose program has ended is an error (EIO) on Linux.
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 1 << 16):
            written += piece
    os.close(ours)
    return process.wait(seconds), written.decode()
