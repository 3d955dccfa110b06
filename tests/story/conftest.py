"""Where a story keeps its stack: a short path that PostgreSQL, run by root as another user, can pass through. And the
stack of the stories of mishaps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from floodmark_laptop.stack import Stack
from mishaps import DATABASE, Mishaps
from server_folders import server_folder


@pytest.fixture
def stack_dir() -> Iterator[Path]:
    with server_folder("floodmark-story-") as folder:
        yield folder


@pytest.fixture(scope="module")
def mishaps() -> Iterator[Mishaps]:
    with server_folder("floodmark-bad-") as folder:
        stack = Stack(folder / "s", print, seconds_between_captures=0.2, database=DATABASE, connection_id="bad_mssql")
        with stack:
            with stack.connect_source("master") as connection:
                connection.cursor().execute(f"CREATE DATABASE {DATABASE}")
            each = Mishaps(stack, folder)
            each.source("EXEC sys.sp_cdc_enable_db")
            yield each
