"""Servers that outlive a run of tests: an emulator and a warehouse that the next ``make test-one`` finds running.

One run at a time has them; another one starts its own. They end when they were free for ten minutes. Servers of changed
sources are other ones.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from embedded_postgres import EmbeddedPostgres
from emulator_process import Emulator, running_emulator
from prepared_folders import PreparedPostgres, sources_key

VARIABLE = "FLOODMARK_STANDING_SERVERS"
WAREHOUSE_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_LOCK = "lock"
_IDLE_SECONDS = 600
_START_SECONDS = 60
_keepers: list[subprocess.Popen[bytes]] = []
"""They outlive this process, which never waits for them."""
_CAPTURE = ("--capture-interval", "0.1")


@dataclass(frozen=True)
class StandingServers:
    """The two servers. A run may use them; it never stops them."""

    emulator: Emulator
    warehouse: EmbeddedPostgres


@cache
def find_servers() -> StandingServers | None:
    """Return the running servers for the rest of this process; start them if there are none.

    None if the environment does not ask for them, or if another run has them.
    """
    if not os.environ.get(VARIABLE):
        return None
    folder = Path(tempfile.gettempdir()) / f"floodmark-tests-{sources_key()}"
    folder.mkdir(mode=0o711, exist_ok=True)
    assert folder.stat().st_uid == os.geteuid(), f"{folder} belongs to another user"
    # Never closed: the lock says that the servers are in use.
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    if not _take(lock):
        os.close(lock)
        return None
    found = _read(folder)
    if found is None:
        _clear(folder)
        _start(folder)
        found = _read(folder)
    assert found is not None, (folder / "log").read_text(errors="replace")
    return found


def _read(folder: Path) -> StandingServers | None:
    try:
        fields: dict[str, Any] = json.loads((folder / "servers.json").read_text(encoding="utf-8"))
        process = psutil.Process(fields.pop("pid"))
        if process.create_time() != fields.pop("began"):
            return None
    except (OSError, psutil.NoSuchProcess):
        return None
    fields |= {"ca_file": Path(fields["ca_file"]), "databases": tuple(fields["databases"]), "process": process}
    return StandingServers(Emulator(**fields), EmbeddedPostgres(folder / "warehouse", settings=WAREHOUSE_SETTINGS))


def _start(folder: Path) -> None:
    with (folder / "log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _keepers.append(keeper)
    deadline = time.monotonic() + _START_SECONDS
    while _read(folder) is None and keeper.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def _keep(folder: Path) -> None:
    """Run both servers until they were free for long, and remove their folder's content."""
    lock = os.open(folder / _LOCK, os.O_RDWR)
    with (
        running_emulator(folder / "emulator", *_CAPTURE) as emulator,
        PreparedPostgres(folder / "warehouse", settings=WAREHOUSE_SETTINGS),
    ):
        _publish(folder, emulator)
        free_since = time.monotonic()
        while emulator.process.is_running():
            time.sleep(1)
            if not _take(lock):
                free_since = time.monotonic()
            elif time.monotonic() - free_since > _IDLE_SECONDS:
                break  # with the lock: no run can find them while they end
            else:
                fcntl.flock(lock, fcntl.LOCK_UN)
    _clear(folder)


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _clear(folder: Path) -> None:
    """Remove all that servers have left, but the lock."""
    for each in folder.iterdir():
        if each.name != _LOCK:
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def _publish(folder: Path, emulator: Emulator) -> None:
    fields = {name: value for name, value in vars(emulator).items() if name not in ("process", "ca_file")}
    place = {"ca_file": str(emulator.ca_file), "pid": emulator.process.pid, "began": emulator.process.create_time()}
    unfinished = folder / "servers.json.new"
    unfinished.touch(mode=0o600)
    unfinished.write_text(json.dumps(fields | place), encoding="utf-8")
    unfinished.rename(folder / "servers.json")


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
