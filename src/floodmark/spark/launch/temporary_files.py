"""The folders of a load job's temporary files, and the explanation where one could not be written.

Nothing is checked before a job, since it may have changed when the job writes. After a job that failed, its output and
the folders are checked.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping

_DEFAULT = "/tmp"  # noqa: S108  (Java's, whatever TMPDIR says; nothing of ours has a name in it)
_PROBE_BYTES = 1 << 16
_COMPLAINTS = re.compile(
    r"No space left on device|Disk quota exceeded|Read-only file system|No usable temporary directory"
    r"|Failed to create (?:a temp directory|local dir|directory)"
)
_LONGEST = 300


def java_options(environment: Mapping[str, str]) -> str | None:
    """Return the SPARK_SUBMIT_OPTS by which Java, and so Spark, uses TMPDIR. None: leave it as it is."""
    options, folder = environment.get("SPARK_SUBMIT_OPTS", ""), environment.get("TMPDIR")
    if not folder or "java.io.tmpdir" in options:
        return None
    return f'{options} "-Djava.io.tmpdir={folder}"'.strip()


def temporary_folders(environment: Mapping[str, str]) -> list[str]:
    """Return the folders of a job on this machine."""
    named = [environment.get("TMPDIR") or _DEFAULT, *environment.get("SPARK_LOCAL_DIRS", "").split(",")]
    return list(dict.fromkeys(filter(None, named)))


def find_complaint(line: str) -> str | None:
    """Return the line, shortened, where it says that a file could not be written."""
    return line.strip()[:_LONGEST] if _COMPLAINTS.search(line) else None


def find_trouble(folders: Iterable[str]) -> list[str]:
    """Return a clause for each folder that cannot be written to now."""
    found = []
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
                probe.write(bytes(_PROBE_BYTES))
        except OSError as error:
            found.append(f"{folder} cannot be written to: {error.strerror}")
    return found


def explain_ending(complaint: str | None, trouble: list[str]) -> tuple[str, str]:
    """Return the explanation of a job that failed, and what to do; "" where there is nothing to explain."""
    if not complaint and not trouble:
        return "", ""
    why = "; ".join(trouble) or "its output says that a file could not be written (see the log)"
    return (
        f"It needs a folder for temporary files: {why}.",
        "Make room there, or have TMPDIR name another folder in the environment of the process that starts the load "
        "(Airflow's workers, or the command). Where SPARK_LOCAL_DIRS is set, it counts as well.",
    )
