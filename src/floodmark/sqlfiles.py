"""Where the SQL files are: ``include/sql`` of the repository, or of the folder that FLOODMARK_HOME names."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def home() -> Path:
    """The folder that holds ``include``: FLOODMARK_HOME, else the repository this package is installed from."""
    return Path(os.environ.get("FLOODMARK_HOME") or Path(__file__).resolve().parents[2])


@cache
def read_sql(folder: str, name: str) -> str:
    """The text of ``include/sql/<folder>/<name>.sql``. Raises FileNotFoundError naming the path and the variable."""
    path = home() / "include" / "sql" / folder / f"{name}.sql"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; set FLOODMARK_HOME to the root of the repository") from None
