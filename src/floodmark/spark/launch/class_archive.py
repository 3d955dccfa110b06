"""Java's class-data archive of Spark: its classes as Java has loaded and verified them, in a file of the installation.

Half of a JVM's work in a small load is to load some 15,000 classes from Spark's jars. Java maps them from the archive
where it fits Java's version and the jars, and otherwise ignores it without a word. ``recording`` makes the file, one
for each Java; ``java_home/bin/java`` has Java use it.
"""

from __future__ import annotations

import sys
from pathlib import Path

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
