"""The table of the seconds of test files, and the order that it gives the next run."""

from __future__ import annotations

from pathlib import Path

import pytest

import suite_seconds


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("quick.py", "slow.py"):
        (tmp_path / name).touch()
    monkeypatch.setattr(suite_seconds, "_REPOSITORY", tmp_path)
    monkeypatch.setattr(suite_seconds, "TABLE", tmp_path / "build" / "seconds.tsv")
    return suite_seconds.TABLE


def test_table_has_the_file_with_the_most_processor_time_first(table: Path) -> None:
    suite_seconds._write_table({"quick.py": (9.0, 1.5, 3), "slow.py": (8.0, 7.25, 2)}, 10.0, 8.75)
    assert table.read_text(encoding="utf-8").splitlines() == [
        "wall\tcpu\ttests\tfile",
        "8.0\t7.2\t2\tslow.py",
        "9.0\t1.5\t3\tquick.py",
        "10.0\t8.8\t5\tall",
    ]


def test_run_of_other_files_keeps_the_rows_of_files_that_exist(table: Path) -> None:
    suite_seconds._write_table({"quick.py": (1.0, 1.0, 1), "gone.py": (5.0, 5.0, 5)}, 6.0, 6.0)
    suite_seconds._write_table({"slow.py": (2.0, 2.0, 2)}, 2.0, 2.0)
    assert suite_seconds.read_table() == {"slow.py": (2.0, 2.0, 2), "quick.py": (1.0, 1.0, 1)}


def test_longest_file_begins_first_and_stories_where_nothing_is_measured() -> None:
    measured = {"tests/unit/test_slow.py": 50.0, "tests/contract/test_quick.py": 1.0}
    files = ["emulator/tests/wire/test_a.py", "tests/contract/test_quick.py", "tests/story/test_b.py", *measured]
    ordered = sorted(dict.fromkeys(files), key=lambda name: suite_seconds._place_of(name, measured))
    assert ordered == [
        "tests/unit/test_slow.py",
        "tests/contract/test_quick.py",
        "tests/story/test_b.py",
        "emulator/tests/wire/test_a.py",
    ]


def test_files_that_share_a_server_are_one_unit_which_has_their_time_on_the_clock() -> None:
    folder, other = suite_seconds._SHARING_FOLDERS
    lake = [f"{folder}/test_a.py", f"{folder}/test_b.py"]
    story = "tests/story/test_c.py"
    rows = {lake[0]: (20.0, 1.0, 1), story: (30.0, 90.0, 1), lake[1]: (15.0, 1.0, 1)}
    measured = suite_seconds.measure_units(rows)
    assert measured == {folder: 35.0, story: 30.0}
    for known in (measured, {}):
        assert sorted([lake[0], story, lake[1]], key=lambda name: suite_seconds._place_of(name, known))[:2] == lake
    assert suite_seconds.unit_of(f"{other}/test_a.py") == other
    assert all((Path(__file__).parents[2] / each).is_dir() for each in (folder, other))


def test_without_a_table_nothing_is_measured(table: Path) -> None:
    assert not table.exists()
    assert suite_seconds.read_table() == {}
