from pathlib import Path

import pytest

from floodmark.sqlfiles import home, read_sql


def test_sql_files_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "floodmark.windows" in read_sql("warehouse", "ensure_schema")


def test_home_is_what_the_variable_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_HOME", str(tmp_path))
    assert home() == tmp_path
    with pytest.raises(FileNotFoundError, match=r"nothing\.sql does not exist; set FLOODMARK_HOME"):
        read_sql("warehouse", "nothing")
