"""The files of a fleet: folders, patterns, and paths that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.core.errors import ConfigError
from floodmark.sources.compact.reader import Fleet
from floodmark.sources.kind import find_kind


def test_folders_and_patterns_name_the_files_of_devices(tmp_path: Path) -> None:
    for name in ("a.db", "b.sqlite", "c.SQLITE3", "a.db-wal", "a.db-shm", "note.txt", "d.data"):
        (tmp_path / name).touch()
    (tmp_path / "folder.db").mkdir()
    fleet = Fleet((str(tmp_path), str(tmp_path / "*.data")))
    assert list(fleet.list_files()) == ["a", "b", "c", "d"]
    one = Fleet((str(tmp_path / "a.db"), str(tmp_path / "[ab].db"))).list_files()
    assert one == {"a": (tmp_path / "a.db",)}
    assert Fleet.from_json(fleet.to_json()) == fleet


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the folder .*absent cannot be read"):
        Fleet((str(tmp_path / "absent" / "*.db"),)).list_files()


@pytest.mark.parametrize("paths", [(), ("relative/devices",)])
def test_paths_that_cannot_be_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"no folder and no file|is not an absolute path"):
        Fleet(paths)


def test_devices_have_no_snapshots_of_tables_and_no_rows_before_updates() -> None:
    rules = find_kind("compact").rules
    assert "only changes that change data capture has recorded" in rules.styles["snapshot"]["style"]
    assert "no row before an update" in rules.of_table()["before_images"]
