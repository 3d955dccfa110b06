"""The SQL of the ledger and the warehouse: one statement per file, one folder per subject, as data of this package.

A file is named like the method that runs it. Names are unique over all folders.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def read_sql(name: str) -> str:
    """Return the text of ``<name>.sql``. Raises FileNotFoundError for a name that has no file."""
    try:
        return _paths()[name].read_text(encoding="utf-8")
    except KeyError:
        raise FileNotFoundError(f"{name}.sql not found below {Path(__file__).parent}") from None


@cache
def _paths() -> dict[str, Path]:
    return {path.stem: path for path in Path(__file__).parent.rglob("*.sql")}
