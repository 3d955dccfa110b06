"""Servers that are attacked: one of canned sessions with low limits, and the whole emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import canned
from emulator_process import Emulator
from hostile_client import Target


@pytest.fixture(scope="session")
def canned_target(emulator_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The wire apart from the engine. Its log must never hold a stack trace."""
    log = tmp_path_factory.mktemp("canned") / "stderr"
    limits = {"login_seconds": 1, "stalled_seconds": 1, "message_bytes": 8 << 20, "all_messages_bytes": 16 << 20}
    with canned.running_canned_server(emulator_dir / "tls", log, **limits) as server:
        target = Target(server, log)
        yield target
        assert "Traceback" not in target.log_text()


@pytest.fixture(scope="session")
def target(emulator: Emulator) -> Target:
    """The whole emulator."""
    return Target(emulator)


@pytest.fixture(scope="session")
def canned_few(emulator_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Three sessions and five connections at most."""
    log = tmp_path_factory.mktemp("canned") / "stderr"
    with canned.running_canned_server(emulator_dir / "tls", log, clients=5, sessions=3) as server:
        yield Target(server, log)
