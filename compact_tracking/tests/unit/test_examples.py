"""The README's examples run as they are printed."""

import re
from pathlib import Path

import pytest

from compact_files import open_file
from compact_tracking import ChangeTracking

README = Path(__file__).parents[2] / "README.md"


def run_examples(number: int) -> dict[str, object]:
    """Run an example of the README and return its names."""
    names: dict[str, object] = {}
    exec(re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)[number], names)  # noqa: S102
    return names


@pytest.fixture(autouse=True)
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = open_file(tmp_path / "device.db")
    file.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, city TEXT)")
    file.execute("INSERT INTO customer VALUES (7, 'Basel'), (8, 'Genf')")


def test_the_first_example_prints_an_update_and_a_delete(capsys: pytest.CaptureFixture[str]) -> None:
    run_examples(0)["file"].close()  # type: ignore[attr-defined]
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["Operation.UPDATE (7,) (7, 'Bern')", "Operation.DELETE (8,) None"]


def test_the_second_example_copies_the_rows(tmp_path: Path) -> None:
    ChangeTracking(open_file(tmp_path / "device.db")).enable_tracking("customer")
    assert run_examples(1)["rows"] == [(7, "Basel"), (8, "Genf")]
