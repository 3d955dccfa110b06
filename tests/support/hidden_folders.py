"""A view of the machine without the clone and without the virtual environment, as another machine has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import floodmark

# The environment first: it may be below the clone.
_HIDDEN = (Path(sys.prefix), Path(floodmark.__file__).parents[2])
# Mounts in a namespace of its own: they end with the process, and nobody else sees them.
_UNSHARE = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))
_SCRIPT = """
set -e
while [ "$1" != -- ]; do
    case "$1" in
        keep) mkdir -p "$3" && mount --bind "$2" "$3"; shift 3 ;;
        hide) mount -t tmpfs none "$2"; shift 2 ;;
    esac
done
shift
exec "$@"
"""


def can_hide() -> bool:
    """Return whether this machine lets a process have mounts of its own."""
    return subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode == 0


def hidden(folder: Path, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the prefix of a command that sees neither clone nor virtual environment, and its environment.

    Folders that variables of the environment name are seen below ``folder`` instead.
    """
    words: list[str] = []
    seen = dict(environment)
    for name, value in environment.items():
        if any(Path(value).is_relative_to(root) for root in _HIDDEN) and Path(value).exists():
            seen[name] = str(folder / name.lower())
            words += ["keep", value, seen[name]]
    words += [word for root in _HIDDEN if root.exists() for word in ("hide", str(root))]
    return [*_UNSHARE, "sh", "-c", _SCRIPT, "sh", *words, "--"], seen
