"""Small files that travel inside a value, for libraries that take nothing but a path.

An executor of a cluster does not have the files of the machine that reads the connections, so the text itself travels.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from functools import cache
from pathlib import Path


def read_file(path: str, subject: str, setting: str) -> str:
    """Return the text of a file that a connection names. Raises ValueError, which names subject and setting."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"{subject}: its {setting} {path} cannot be read: {why}") from None


@cache
def path_of(text: str) -> str:
    """Return a path at which this process, and each that it forks, reads the text."""
    if sys.platform == "linux":
        # A file in memory: a worker of Spark that is killed leaves nothing behind.
        number = os.memfd_create("floodmark")
        os.write(number, text.encode())
        return f"/proc/self/fd/{number}"
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="floodmark-", delete=False) as file:
        file.write(text)
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return file.name
