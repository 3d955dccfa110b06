"""A PostgreSQL that runs what the translator makes, without the rest of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded_postgres import EmbeddedPostgres
from prepared_folders import PreparedPostgres

_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session")
def postgres(shared_dir: Path) -> Iterator[EmbeddedPostgres]:
    with PreparedPostgres(shared_dir / "translate", settings=_FAST) as server:
        yield server
