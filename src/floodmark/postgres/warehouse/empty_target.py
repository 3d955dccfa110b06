"""The merge into a target without rows: an INSERT, and the primary key's index is built after it (ADR 58).

The key is dropped and added in the merge's transaction, under an exclusive lock. Where that is not possible, the
caller merges as usual: a key that others depend on, a table that others read, a role that does not own it.
"""

from __future__ import annotations

from contextlib import suppress

import psycopg

from floodmark.core.naming import quote, quote_table
from floodmark.core.schema import TableName
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.merge import Merge, build_insert
from floodmark.postgres.warehouse.target_locks import MERGE_LOCK_SECONDS

BULK_ROWS = 10_000
"""The rows from which on this is worth its statements and its lock."""
_LOCK_TIMEOUT = "1s"
"""The time that readers of the target, which has no rows, can hold up the load. Others wait behind this lock."""
_NOT_POSSIBLE = (
    psycopg.errors.LockNotAvailable,
    # The merge of several tables has the locks of those before: a reader of both may wait for one of them.
    psycopg.errors.DeadlockDetected,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.DependentObjectsStillExist,
)


def insert_into_empty(session: psycopg.Connection, merge: Merge) -> bool:
    """Insert the staged rows, where the target has none and its key can be built after them. Return whether it was so.

    Raises psycopg.IntegrityError as the merge does: UniqueViolation for a duplicate key, with the key's name.
    """
    if merge.has_tombstones or has_any_row(session, merge.target):
        return False
    key = _drop_key(session, merge.target)
    if key is None:
        return False
    name, definition = key
    session.execute(build_insert(merge).sql(dialect="postgres"))
    session.execute(f"ALTER TABLE {quote_table(merge.target)} ADD CONSTRAINT {quote(name)} {definition}")
    return True


def has_any_row(session: psycopg.Connection, target: TableName) -> bool:
    """Return whether a target has a row, also one that is marked as deleted."""
    found = session.execute(f"SELECT EXISTS (SELECT FROM {quote_table(target)})").fetchone()  # noqa: S608  (quoted)
    return bool(found and found[0])


def _drop_key(session: psycopg.Connection, target: TableName) -> tuple[str, str] | None:
    """Lock the target and drop its primary key. Return name and definition; None where the target is to keep it."""
    key = None
    with suppress(*_NOT_POSSIBLE), session.transaction():  # a savepoint: what is not possible leaves no trace
        session.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        session.execute(f"LOCK TABLE {quote_table(target)} IN ACCESS EXCLUSIVE MODE")
        found = _plain_key(session, target)
        if found is None:
            raise psycopg.Rollback
        session.execute(f"ALTER TABLE {quote_table(target)} DROP CONSTRAINT {quote(found[0])}")
        session.execute(f"SET LOCAL lock_timeout = {int(MERGE_LOCK_SECONDS * 1000)}")
        key = found
    return key


def _plain_key(session: psycopg.Connection, target: TableName) -> tuple[str, str] | None:
    named = {"schema": target.schema, "name": target.name}
    found = session.execute(read_sql("read_plain_primary_key"), named).fetchone()
    return (found[0], found[1]) if found and not has_any_row(session, target) else None
