"""The names of the test files: pytest imports each by its name alone, so that it refuses the second of one name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("tests", "compact_tracking/tests", "emulator/tests")


def test_no_two_test_files_have_one_name() -> None:
    names = Counter(path.name for folder in FOLDERS for path in (REPOSITORY / folder).rglob("test_*.py"))
    assert len(names) > 100
    assert [name for name, files in names.items() if files > 1] == []


def test_no_module_of_floodmark_has_more_than_600_lines() -> None:
    lines = {
        path: len(path.read_text("utf-8").splitlines()) for path in (REPOSITORY / "src" / "floodmark").rglob("*.py")
    }
    assert len(lines) > 100
    assert {path.name: count for path, count in lines.items() if count > 600} == {}
