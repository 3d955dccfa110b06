"""The T-SQL that is read from files: ``include/sql/source`` of the repository, which is part of the package's data.

The folder ``sql`` next to this module is a link to it, so that there is one copy and a wheel has the files.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def read_sql(name: str) -> str:
    """Return the text of ``<name>.sql``. Raises FileNotFoundError for a name that has no file."""
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text(encoding="utf-8")
