"""CREATE, ALTER and DROP DATABASE; CREATE and DROP SCHEMA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sqlserver_emulator.collations import DEFAULT_COLLATION, Collation
from sqlserver_emulator.engine.names import postgres_schema, quote


class Fetch(Protocol):
    """Run one PostgreSQL statement with $1..$n and return its rows."""

    def __call__(self, sql: str, parameters: Sequence[object] = (), /) -> list[tuple[Any, ...]]: ...


SYSTEM_DATABASES = ("master", "tempdb", "model", "msdb")
_SCHEMAS = {"dbo": 1, "guest": 2, "INFORMATION_SCHEMA": 3, "sys": 4}
_FIXED_ROLES = (
    "db_owner",
    "db_accessadmin",
    "db_securityadmin",
    "db_ddladmin",
    "db_backupoperator",
    "db_datareader",
    "db_datawriter",
    "db_denydatareader",
    "db_denydatawriter",
)
# The numbers of the server: db_owner is 16384.
_FIRST_FIXED_ROLE_ID = 16384
# 1 to 4 are master, tempdb, model and msdb.
_FIRST_USER_DATABASE_ID = 5


_VIEW_SCHEMAS = ("sys", "INFORMATION_SCHEMA")
_MOST_SPARES = 20
"""Databases that end while later ones live leave spares that nobody takes."""
_MAY_BE_SPARE = """
WITH made AS (SELECT relname, relkind, relacl::text FROM pg_class WHERE relnamespace = (SELECT to_regnamespace($1))),
    base AS (SELECT relname, relkind FROM pg_class WHERE relnamespace = (SELECT to_regnamespace($2)) AND relkind = 'v')
SELECT (SELECT count(*) FROM pg_namespace WHERE nspname ~ '^emulator_spare_') < $3::int
   AND NOT EXISTS (SELECT FROM pg_proc WHERE pronamespace = (SELECT to_regnamespace($1)))
   AND NOT EXISTS (
       SELECT FROM made FULL JOIN base USING (relname, relkind)
       WHERE relacl IS DISTINCT FROM '{postgres=arwdDxtm/postgres,=r/postgres}' OR base.relname IS NULL)
"""
_LEAVE_ROWS = """
UPDATE emulator.objects o SET database_id = NULL FROM emulator.schemas s
WHERE o.database_id = $1::int AND s.database_id = $1::int AND s.name = $2::varchar AND o.schema_id = s.schema_id
    AND o.type = 'V'
"""
"""The rows of a spare's views belong to no database meanwhile: install_system_views gives them to the next one."""
_NUMBERS_LOCK = 0x44424E52
"""Key of the advisory lock of the session that gives a new database its number."""


def create_database(
    fetch: Fetch,
    script: Callable[[str], None],
    name: str,
    *,
    system: bool = False,
    collation: Collation = DEFAULT_COLLATION,
) -> int:
    """Everything a database consists of; in the caller's transaction. Returns database_id."""
    database_id = _next_database_id(fetch, name, system)
    sequence = f"emulator.rowversion_{database_id}"
    script(f"CREATE SEQUENCE {sequence} START 2001; GRANT USAGE ON SEQUENCE {sequence} TO PUBLIC")
    fetch(
        "INSERT INTO emulator.databases (database_id, name, is_system, rowversion_sequence, collation_name)"
        " VALUES ($1::int, $2, $3::boolean, $4, $5)",
        [database_id, name, system, sequence, collation.name],
    )
    for schema, schema_id in _SCHEMAS.items():
        create_schema(fetch, script, database_id, name, schema, schema_id=schema_id)
    _create_principals(fetch, database_id, name)
    fetch("SELECT emulator.install_system_views($1::int)", [database_id])
    return database_id


def _next_database_id(fetch: Fetch, name: str, system: bool) -> int:
    if system:
        return SYSTEM_DATABASES.index(name) + 1
    # Of two that are made at the same time, the second waits until the first one's number is to be seen.
    fetch("SELECT pg_advisory_xact_lock($1::bigint)", [_NUMBERS_LOCK])
    used = fetch(
        "SELECT greatest(coalesce(max(database_id), 0) + 1, $1::int) FROM emulator.databases", [_FIRST_USER_DATABASE_ID]
    )
    return int(used[0][0])


def create_schema(
    fetch: Fetch,
    script: Callable[[str], None],
    database_id: int,
    database: str,
    name: str,
    *,
    schema_id: int | None = None,
) -> None:
    """Create a schema of a database; ``schema_id`` None: the next free number."""
    postgres_name = postgres_schema(database, name)
    is_spare = name in _VIEW_SCHEMAS and _has_spare(fetch, database_id, name)
    if schema_id is None:
        rows = fetch(
            # Numbers from 16384 on are those of the fixed roles' schemas.
            "SELECT greatest(max(schema_id) + 1, 5) FROM emulator.schemas WHERE database_id = $1::int"
            " AND schema_id < $2::int",
            [database_id, _FIRST_FIXED_ROLE_ID],
        )
        schema_id = int(rows[0][0])
    if is_spare:
        script(f"ALTER SCHEMA {quote(_spare(database_id, name))} RENAME TO {quote(postgres_name)}")
    else:
        script(f"CREATE SCHEMA {quote(postgres_name)}; GRANT USAGE ON SCHEMA {quote(postgres_name)} TO PUBLIC")
    fetch(
        "INSERT INTO emulator.schemas (database_id, schema_id, name, principal_id, postgres_name)"
        " VALUES ($1::int, $2::int, $3, $4::int, $5)",
        [database_id, schema_id, name, schema_id if schema_id < 5 else 1, postgres_name],
    )


def _create_principals(fetch: Fetch, database_id: int, database: str) -> None:
    """dbo, the fixed roles, and public."""
    principals = [
        ("public", 0, "R", True),
        ("dbo", 1, "S", False),
        ("guest", 2, "S", False),
        ("INFORMATION_SCHEMA", 3, "S", False),
        ("sys", 4, "S", False),
    ]
    principals += [(role, _FIRST_FIXED_ROLE_ID + i, "R", True) for i, role in enumerate(_FIXED_ROLES)]
    for name, principal_id, type_, fixed in principals:
        login = "sa" if name == "dbo" else None
        fetch(
            "INSERT INTO emulator.principals (database_id, principal_id, name, type, login, "
            "default_schema, is_fixed_role,"
            " postgres_role) VALUES ($1::int, $2::int, $3, $4, $5, $6, $7::boolean, $8)",
            [
                database_id,
                principal_id,
                name,
                type_,
                login,
                "dbo" if type_ == "S" else None,
                fixed,
                "public" if name == "public" else postgres_schema(database, name),
            ],
        )


def drop_database(fetch: Fetch, script: Callable[[str], None], name: str) -> None:
    """Remove a database with its schemas, roles and catalog rows."""
    rows = fetch(
        "SELECT s.postgres_name, d.rowversion_sequence, d.database_id, s.name FROM emulator.databases d"
        " JOIN emulator.schemas s ON s.database_id = d.database_id WHERE d.name = $1",
        [name],
    )
    for postgres_name, _, database_id, schema in rows:
        if schema in _VIEW_SCHEMAS and _leave_views(fetch, script, str(postgres_name), str(schema)):
            script(f"ALTER SCHEMA {quote(postgres_name)} RENAME TO {quote(_spare(database_id, schema))}")
            fetch(_LEAVE_ROWS, [database_id, schema])
            continue
        # PostgreSQL's CASCADE drops tables, views and functions without an order of their own.
        script(f"DROP SCHEMA {quote(postgres_name)} CASCADE")
    roles = fetch(
        "SELECT p.postgres_role FROM emulator.principals p JOIN emulator.databases d ON d.database_id = p.database_id"
        " JOIN pg_roles r ON r.rolname = p.postgres_role WHERE d.name = $1",
        [name],
    )
    for (role,) in roles:
        # A role that owns or has something cannot be dropped.
        script(f"DROP OWNED BY {quote(role)} CASCADE; DROP ROLE {quote(role)}")
    if rows:
        script(f"DROP SEQUENCE {rows[0][1]}")
        _forget_tracking(fetch, script, int(rows[0][2]))
        fetch("DELETE FROM emulator.databases WHERE name = $1", [name])


def _spare(database_id: int, schema: str) -> str:
    """Return the PostgreSQL schema that keeps the system views of a dropped database for the next one of its number.

    To make them takes most of the time of a CREATE DATABASE, and to drop them most of that of a DROP DATABASE.
    """
    return f"emulator_spare_{database_id}_{schema}"


def _has_spare(fetch: Fetch, database_id: int, schema: str) -> bool:
    return bool(fetch("SELECT 1 FROM pg_namespace WHERE nspname = $1", [_spare(database_id, schema)]))


def _leave_views(fetch: Fetch, script: Callable[[str], None], postgres_name: str, schema: str) -> bool:
    """Drop all of a schema but the system views that every database has. Return whether it may be a spare then.

    It may not with anything else in it, or with rights that users have given; and there are enough spares.
    """
    routines = fetch(
        "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = (SELECT to_regnamespace($1))",
        [quote(postgres_name)],
    )
    for (routine,) in routines:
        # Views that use it go as well.
        script(f"DROP ROUTINE IF EXISTS {routine} CASCADE")
    base = "emulator_sys" if schema == "sys" else "emulator_information_schema"
    (found,) = fetch(_MAY_BE_SPARE, [quote(postgres_name), base, _MOST_SPARES])
    return bool(found[0])


def _forget_tracking(fetch: Fetch, script: Callable[[str], None], database_id: int) -> None:
    """Drop what Change Tracking has of the database's tables, which are gone, and the counter of its versions."""
    numbers = fetch("SELECT object_id FROM emulator.change_tracking_tables WHERE database_id = $1::int", [database_id])
    for (object_id,) in numbers:
        script(f"DROP TABLE emulator.change_tracking_{object_id}")
        functions = fetch(
            "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'emulator'::regnamespace"
            " AND p.proname ~ $1",
            [f"^tracking_(record|changes|version)_{object_id}$"],
        )
        for (function,) in functions:
            script(f"DROP FUNCTION {function}")
    fetch("DELETE FROM emulator.change_tracking_commits WHERE database_id = $1::int", [database_id])
    script(f"DROP SEQUENCE IF EXISTS emulator.change_tracking_version_{database_id}")
    # The copy that emulator.take_backup made: another database may get the number.
    script(f"DROP SCHEMA IF EXISTS emulator_backup_{database_id} CASCADE")
