"""The library's tests close every connection that they opened."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from compact_files import ITEM, close_files, make_file


@pytest.fixture(autouse=True)
def close_all_files() -> Iterator[None]:
    yield
    close_files()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device.db"


@pytest.fixture(params=["WAL", "DELETE"])
def file(path: Path, request: pytest.FixtureRequest) -> sqlite3.Connection:
    """A file with two items, in each journal mode."""
    connection = make_file(path, ITEM, "INSERT INTO item (k, code, v) VALUES ('a', 1, 0), ('b', 2, 0)")
    connection.execute(f"PRAGMA journal_mode = {request.param}")
    return connection
