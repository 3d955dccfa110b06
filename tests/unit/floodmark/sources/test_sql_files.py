from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from floodmark.postgres import sql
from floodmark.sources.cdc import sql_files

CLONE = Path(__file__).resolve().parents[4]


def test_sql_files_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "floodmark.windows" in sql.read_sql("ensure_schema")
    assert "cdc." in sql_files.read_sql("read_snapshot")


def test_sql_file_that_does_not_exist_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.sql"):
        sql.read_sql("nothing")
    with pytest.raises(FileNotFoundError, match=r"nothing\.sql"):
        sql_files.read_sql("nothing")


def test_names_of_sql_files_are_unique_over_their_folders() -> None:
    names = Counter(path.name for path in Path(sql.__file__).parent.rglob("*.sql"))
    assert names
    assert not [name for name, times in names.items() if times > 1]


def test_t_sql_for_a_dba_is_the_packages_own_copy() -> None:
    packaged = Path(sql_files.__file__).parent / "sql"
    assert packaged.resolve() == CLONE / "include" / "sql" / "source"
