"""The list of the files that a whole run begins with."""

from __future__ import annotations

import longest_files


def test_every_listed_file_exists() -> None:
    assert [str(path) for path in longest_files._PLACES if not path.is_file()] == []
