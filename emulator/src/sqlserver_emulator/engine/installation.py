"""Installation of the engine in PostgreSQL: the catalog, T-SQL's functions and the system views, all in ``sql/``."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import psycopg

from sqlserver_emulator.engine.ddl.databases import Fetch
from sqlserver_emulator.engine.type_library import best_fit_script, type_script

CATALOG = ("catalog.sql", "moments.sql")
"""Tables of the catalog and types, in this order."""
LIBRARY = (
    "permissions.sql",
    "masks.sql",
    "credentials.sql",
    "security_policies.sql",
    "library.sql",
    "collations.sql",
    "functions_numbers.sql",
    "functions_text.sql",
    "functions_json.sql",
    "functions_binary.sql",
    "functions_dates.sql",
    "functions_date_texts.sql",
    "functions_zones.sql",
    "functions_format.sql",
    "functions_metadata.sql",
    "functions_session.sql",
    "keys.sql",
    "extended_properties.sql",
    "filegroups.sql",
    "change_tracking.sql",
    "my_permissions.sql",
)
"""T-SQL's functions as PostgreSQL functions, in this order."""


VIEWS = ("sys_views.sql", "sys_views_tools.sql")
"""The system views, in this order; the first makes their schemas."""


def install_catalog(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Make the tables of the catalog and the types, once in a cluster's life."""
    for script in CATALOG:
        connection.execute(_sql(script))


def library_scripts() -> list[bytes]:
    """The scripts of the function library, in the order in which they build on each other."""
    return [_sql("programs.sql"), type_script(), best_fit_script(), *map(_sql, LIBRARY)]


def install_library(connection: psycopg.Connection[tuple[object, ...]], run: Fetch) -> None:
    """Make the function library and the system views; again when a version of the emulator changed them."""
    library = [*library_scripts(), *map(_sql, VIEWS)]
    release = run("SELECT value FROM emulator.settings WHERE name = 'release_year'")
    digest = hashlib.sha256(b"".join([*library, str(release).encode()])).hexdigest()
    if run("SELECT 1 FROM emulator.settings WHERE name = 'library' AND value = $1", [digest]):
        return
    for script in library:
        connection.execute(script)
    for (database_id,) in run("SELECT database_id FROM emulator.databases"):
        run("SELECT emulator.install_system_views($1::int)", [database_id])
    run(
        "INSERT INTO emulator.settings VALUES ('library', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [digest],
    )


def _sql(name: str) -> bytes:
    return files("sqlserver_emulator.engine").joinpath(f"sql/{name}").read_text(encoding="utf-8").encode()
