"""An archive with a Python environment for executors, made from the packages that are installed here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

import compact_tracking
import floodmark

_EXECUTORS = (
    "adbc-driver-manager",
    "adbc-driver-postgresql",
    "mssql-python",
    "numpy",
    "psutil",
    "psycopg",
    "psycopg-binary",
    "pyarrow",
)
"""As docs/cluster.md lists them."""


def pack_environment(folder: Path) -> Path:
    """Return an archive ``packed.tar.gz`` in a folder: an environment with the executors' packages and Floodmark."""
    environment = folder / "packed"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    for name in _with_requirements(_EXECUTORS):
        _copy_distribution(name, packages)
    # As wheels have them: without links into the clone.
    for each in (floodmark, compact_tracking):
        source = Path(str(each.__file__)).parent
        shutil.copytree(source, packages / source.name)
    # Spark unpacks .tar by itself and then refuses links that lead out, such as that to the interpreter.
    archive = folder / "packed.tar.gz"
    # Uncompressed all the same: it is unpacked next door, and once for every driver and executor.
    with tarfile.open(archive, "w:gz", compresslevel=0) as packed:
        packed.add(environment, ".")
    shutil.rmtree(environment)
    return archive


def _with_requirements(names: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    missing = list(names)
    while missing:
        name = missing.pop()
        if name not in found:
            found.add(name)
            missing += _requirements(name)
    return found


def _requirements(name: str) -> Iterator[str]:
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def _copy_distribution(name: str, packages: Path) -> None:
    found = distribution(name)
    for path in found.files or ():
        # Scripts and headers are outside of the folder of packages.
        if ".." not in path.parts:
            target = packages / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(found.locate_file(path)), target)
