"""Where a story keeps its stack: a short path that PostgreSQL, run by root as another user, can pass through. And the
stack of the stories of mishaps."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from floodmark_laptop.stack import Stack
from mishaps import DATABASE, Mishaps


@pytest.fixture
def stack_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="floodmark-story-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def mishaps() -> Iterator[Mishaps]:
    folder = Path(tempfile.mkdtemp(prefix="floodmark-bad-"))
    folder.chmod(0o755)
    stack = Stack(folder / "s", print, seconds_between_captures=0.2, database=DATABASE, connection_id="bad_mssql")
    try:
        with stack:
            with stack.connect_source("master") as connection:
                connection.cursor().execute(f"CREATE DATABASE {DATABASE}")
            each = Mishaps(stack, folder)
            each.source("EXEC sys.sp_cdc_enable_db")
            yield each
    finally:
        shutil.rmtree(folder, ignore_errors=True)
