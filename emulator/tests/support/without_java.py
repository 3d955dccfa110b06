"""A machine without Java for the tests, as many users have: the machine's own Java is taken off the PATH.

FLOODMARK_TEST_JAVA=machine leaves it there.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def keeps_java() -> bool:
    """Return whether the environment asks for tests on the machine's own Java."""
    return os.environ.get("FLOODMARK_TEST_JAVA") == "machine"


def hide_java() -> None:
    """Unset JAVA_HOME, and give PATH a folder of links to all other programs in place of each that holds a java."""
    if keeps_java():
        return
    os.environ.pop("JAVA_HOME", None)
    folders = [Path(each) for each in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    if not any(_holds_java(folder) for folder in folders):
        return
    links = Path(tempfile.mkdtemp(prefix="floodmark-path-"))
    links.chmod(0o755)
    atexit.register(shutil.rmtree, links, ignore_errors=True)
    shown = [_link(folder, links / str(n)) if _holds_java(folder) else folder for n, folder in enumerate(folders)]
    os.environ["PATH"] = os.pathsep.join(map(str, shown))


def _holds_java(folder: Path) -> bool:
    return os.access(folder / "java", os.X_OK)


def _link(folder: Path, links: Path) -> Path:
    links.mkdir()
    for program in folder.iterdir():
        if program.name != "java":
            (links / program.name).symlink_to(program)
    return links
