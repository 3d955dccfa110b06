"""Folders for servers that tests start: with a short path, open to the user that PostgreSQL runs as, and in memory.

A test's database is hundreds of files that live for a second: on a disk, making and removing them takes more of the
processor than what the test does with them. Where memory is short, or TMPDIR names a place, they are made there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder in it is made by mkdtemp
_FREE_BYTES = 8 << 30
_AVAILABLE_BYTES = 12 << 30
"""The servers of a whole test run keep about 3 GB in their folders, and the runs with Spark take what they take."""


@contextmanager
def server_folder(prefix: str) -> Iterator[Path]:
    """A new folder, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if _has_plenty_of_memory() else None))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_plenty_of_memory() -> bool:
    if os.environ.get("TMPDIR") or not os.access(_MEMORY, os.W_OK):
        return False
    files = os.statvfs(_MEMORY)
    # PostgreSQL's programs are copied next to the data where its user cannot reach the installed ones.
    may_run_programs = not files.f_flag & os.ST_NOEXEC
    is_free = files.f_bavail * files.f_frsize >= _FREE_BYTES
    return may_run_programs and is_free and psutil.virtual_memory().available >= _AVAILABLE_BYTES
