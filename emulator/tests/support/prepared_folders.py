"""Data folders that were made once and are copied from then on: a PostgreSQL cluster after initdb, and an emulator's.

They are in ``build/prepared``. A change of the lock file, of the emulator's sources or of the time zone, which initdb
writes into the cluster, gives them a new name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from embedded_postgres import EmbeddedPostgres, make_passable_folder
from server_folders import server_folder
from sqlserver_emulator.server.certificate import provide_certificate
from sqlserver_emulator.testing import running_emulator

_REPOSITORY = Path(__file__).parents[3]
_PREPARED = _REPOSITORY / "build" / "prepared"
_SOURCES = _REPOSITORY / "emulator" / "src"
_TIME_ZONE = os.environ.get("TZ", "")


def copy_emulator_data(data_dir: Path) -> None:
    """Make the data of an emulator without a database of its own, unless ``data_dir`` has data.

    A test that has changed the time zone gets none.
    """
    if not (data_dir / "postgres").exists() and os.environ.get("TZ", "") == _TIME_ZONE:
        make_passable_folder(data_dir)
        _copy(_prepare(f"emulator-{sources_key()}", _make_emulator), data_dir / "postgres")


class PreparedPostgres(EmbeddedPostgres):
    """An ``EmbeddedPostgres`` that copies a cluster in place of running initdb."""

    def _initdb(self) -> None:
        made = _prepare(f"postgres-{sources_key()}", _make_postgres)
        self.cluster_dir.rmdir()
        _copy(made / "cluster", self.cluster_dir)
        shutil.copy2(made / "password", self.data_dir / "password")


def copy_certificate(folder: Path) -> None:
    """Make a certificate for 127.0.0.1, where there is none. All test processes have one authority.

    mssql-python's Rust driver keeps the first authority that it reads, for all servers of its process.
    """
    if not folder.exists():
        # Its name stays: while a run has emulators, another one may begin with other sources.
        _copy(_prepare(f"tls-{os.geteuid()}", lambda made: _make_certificate(made / "made")), folder)


def _make_certificate(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    provide_certificate(folder, "127.0.0.1")


def _make_emulator(folder: Path) -> None:
    with running_emulator(folder / "data", databases=()):
        pass
    _copy(folder / "data" / "postgres", folder / "made")


def _make_postgres(folder: Path) -> None:
    with EmbeddedPostgres(folder / "made"):
        pass


def _prepare(name: str, make: Callable[[Path], None]) -> Path:
    """Return the prepared folder, made by the first process that asks for it."""
    folder = _PREPARED / name
    _PREPARED.mkdir(parents=True, exist_ok=True)
    with (_PREPARED / f"lock-{os.geteuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for outdated in _PREPARED.glob(f"{name.partition('-')[0]}-{os.geteuid()}-*"):
                shutil.rmtree(outdated, ignore_errors=True)
            with server_folder("floodmark-prepared-") as made:
                make(made)
                unfinished = folder.with_name(f"unfinished-{folder.name}")
                shutil.rmtree(unfinished, ignore_errors=True)
                _copy(made / "made", unfinished)
            unfinished.rename(folder)
    return folder


@cache
def sources_key() -> str:
    """Return a name for what the folders are made from: packages, sources, Python, and the user that owns them."""
    files = [_REPOSITORY / "uv.lock", *sorted(_SOURCES.rglob("*.py")), *sorted(_SOURCES.rglob("*.sql"))]
    zone = Path("/etc/localtime")
    digest = hashlib.sha256(f"{sys.version} {_TIME_ZONE} {zone.resolve()}".encode())
    for file in files:
        digest.update(file.read_bytes())
    return f"{os.geteuid()}-{digest.hexdigest()[:16]}"


def _copy(folder: Path, to: Path) -> None:
    """Copy with owners and modes: the files of a cluster belong to the user that PostgreSQL runs as."""
    subprocess.run(["cp", "-a", "--", str(folder), str(to)], check=True)
