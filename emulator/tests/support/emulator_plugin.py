"""Servers that many tests share, and what every run of tests needs. The ``conftest.py`` of a test folder loads it.

A plugin, so that one run of several folders has one emulator.
"""

from __future__ import annotations

import gc
import logging
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import standing_servers
from emulator_process import Emulator, running_emulator
from server_folders import server_folder


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("suite_seconds")
    # An example that takes long on a busy machine shows no fault.
    settings.register_profile("unhurried", settings.default, deadline=None)
    settings.load_profile("unhurried")
    logging.getLogger("py4j").setLevel(logging.WARNING)


def pytest_collection_finish() -> None:
    """Imported objects stay: the garbage collector need not search all of them again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Messages of py4j about a JVM that is gone no longer have a stream: the tests have ended."""
    logging.raiseExceptions = False


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to run each failed test alone."""
    for report in (*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")):
        terminalreporter.write_line(f"alone: make test-one T={shlex.quote(report.nodeid)}")


@pytest.fixture(scope="module")
def open_dir() -> Iterator[Path]:
    """A folder that an unprivileged PostgreSQL can pass through, with a short path for its socket.

    Each file of tests has one of its own, so that files need not know each other's names.
    """
    with server_folder("sqlserver-emulator-") as folder:
        yield folder


@pytest.fixture(scope="session")
def shared_dir() -> Iterator[Path]:
    """A folder like ``open_dir``, of the servers that many files share."""
    with server_folder("sqlserver-emulator-") as folder:
        yield folder


@pytest.fixture(scope="session")
def emulator_dir(shared_dir: Path) -> Path:
    """The data folder of ``emulator``."""
    return shared_dir / "emulator"


@pytest.fixture(scope="session")
def emulator(emulator_dir: Path) -> Iterator[Emulator]:
    """A running emulator with the database Test, its capture job scanning ten times a second."""
    standing = standing_servers.find_servers()
    if standing is not None:
        yield standing.emulator
        return
    with running_emulator(emulator_dir, "--capture-interval", "0.1") as running:
        yield running
