"""The SQL of the ledger and the warehouse, as data of this package: one file for each subject.

A statement begins with the line ``-- name: <name>``. Its name is unique, and is that of the method that runs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def read_sql(name: str) -> str:
    """Return the text of a statement. Raises KeyError for a name that no statement has."""
    try:
        return _statements()[name]
    except KeyError:
        raise KeyError(f"no statement {name} below {Path(__file__).parent}") from None


def list_statements() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each statement."""
    for path in sorted(Path(__file__).parent.glob("*.sql")):
        _, *parts = _NAME.split(path.read_text(encoding="utf-8"))
        yield from zip(parts[::2], (text.strip("\n") + "\n" for text in parts[1::2]), strict=True)


@cache
def _statements() -> dict[str, str]:
    return dict(list_statements())
