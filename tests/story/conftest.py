"""Where a story keeps its stack: a short path that PostgreSQL, run by root as another user, can pass through."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def stack_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="floodmark-story-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
