from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from floodmark.postgres import sql
from floodmark.sources.sqlserver import tables

CLONE = Path(__file__).resolve().parents[4]


def test_sql_files_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "floodmark.windows" in sql.read_sql("ensure_schema")
    assert "cdc." in tables.read_sql("read_snapshot")


def test_statement_that_does_not_exist_is_named() -> None:
    with pytest.raises(KeyError, match="no statement nothing below"):
        sql.read_sql("nothing")
    with pytest.raises(FileNotFoundError, match=r"nothing\.sql"):
        tables.read_sql("nothing")


def test_names_of_statements_are_unique_over_their_files() -> None:
    names = Counter(name for name, _ in sql.list_statements())
    assert names
    assert not [name for name, times in names.items() if times > 1]


def test_t_sql_for_a_dba_is_the_packages_own_copy() -> None:
    packaged = Path(tables.__file__).parent / "sql"
    assert packaged.resolve() == CLONE / "include" / "sql" / "source"


def test_error_ends_a_batch_of_several_results() -> None:
    """The driver is asked for the number of an error after it; a statement that succeeded since would hide it."""
    for path in (Path(tables.__file__).parent / "sql").glob("*.sql"):
        text = path.read_text(encoding="utf-8")
        if "Result sets" in text:
            assert "SET XACT_ABORT ON;" in text, path.name
