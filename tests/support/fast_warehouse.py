"""A warehouse for thousands of short histories: the product's own ledger and merge, on sessions that are kept.

Most of the time of a small window is spent on new connections: the ledger and the warehouse open one for each
transaction outside of ``kept_sessions``, and a sink opens one for each part. Here a session that is closed returns to a
pool, without its locks and settings, so that the next transaction finds it. All statements are the product's own, each
transaction is one, and two that are open at once have two sessions.

Statements that a merge builds are built once for all windows.

A database serves some histories and is then made again from a template: without VACUUM its catalogue only grows.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from types import TracebackType
from typing import Any
from unittest.mock import patch

import psycopg
import pyarrow as pa
from psycopg.pq import TransactionStatus
from sqlglot import exp

import floodmark.postgres.warehouse.verify  # noqa: F401  (before the patch below: it reads by a session of its own)
from embedded_postgres import EmbeddedPostgres
from floodmark.core.schema import STAGING_SCHEMA, TableName, quote, quote_table
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import SESSION_SETTINGS, WarehouseConnection, by_sqlstate
from floodmark.postgres.warehouse.merge import Merge

HISTORIES_PER_DATABASE = 50
_idle: list[PooledSession] = []


class PooledSession(psycopg.Connection[Any]):
    """A session that returns to the pool where another would be closed."""

    is_marked = False
    """Whether it may hold a lock of the session, or has a setting of its own."""

    def execute(self, query: Any, *arguments: Any, **named: Any) -> psycopg.Cursor[Any]:
        if isinstance(query, str) and ("advisory_lock" in query or query.startswith("SET lock_timeout")):
            self.is_marked = True
        return super().execute(query, *arguments, **named)

    def close(self) -> None:
        if self.closed or self.info.transaction_status is not TransactionStatus.IDLE:
            super().close()
            return
        if self.is_marked:
            super().execute("SELECT pg_advisory_unlock_all(), set_config('lock_timeout', '0', false)")
            self.is_marked = False
        _idle.append(self)


class PooledArrowSession:
    """``ArrowSession`` on a pooled session: rows travel by COPY as text in place of COPY from Arrow."""

    def __init__(self, at: WarehouseConnection, subject: str) -> None:
        self._subject = subject
        self._session = take_session(at.conninfo())
        self._session.execute("BEGIN")

    def __enter__(self) -> PooledArrowSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._session.info.transaction_status is not TransactionStatus.IDLE:
            self._session.execute("ROLLBACK")
        self._session.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise by_sqlstate(error.sqlstate, str(error), self._subject) from None

    def execute(self, sql: str) -> None:
        with self._translated():
            self._session.execute(sql)

    def fetch(self, sql: str) -> list[tuple[object, ...]]:
        with self._translated():
            return self._session.execute(sql).fetchall()

    def copy(self, table: TableName, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        names, rows = ", ".join(quote(name) for name in schema.names), 0
        with (
            self._translated(),
            self._session.cursor() as cursor,
            cursor.copy(f"COPY {quote_table(table)} ({names}) FROM STDIN") as copy,
        ):
            for batch in batches:
                for row in batch.to_pylist():
                    copy.write_row(tuple(row[name] for name in schema.names))
                    rows += 1
        return rows

    def commit(self) -> None:
        with self._translated():
            self._session.execute("COMMIT")


def take_session(conninfo: str, subject: str = "") -> PooledSession:
    """Return an idle session of the pool, or a new one."""
    while _idle:
        session = _idle.pop()
        if not session.closed:
            return session
    session = PooledSession.connect(conninfo, autocommit=True, prepare_threshold=None)
    session.execute(SESSION_SETTINGS)
    return session


@contextmanager
def pooled_sessions() -> Iterator[None]:
    """Let ledger, warehouse and sinks take their sessions from the pool. Tables of a window are staged one by one."""
    with ExitStack() as stack:
        stack.enter_context(patch("floodmark.postgres.session._connect", take_session))
        stack.enter_context(patch.object(WarehouseConnection, "conninfo", cache(WarehouseConnection.conninfo)))
        stack.enter_context(patch("floodmark.postgres.warehouse.sink.ArrowSession", PooledArrowSession))
        for builder in _BUILDERS:
            stack.enter_context(patch(builder, _rendered_once(pkgutil.resolve_name(builder))))
        # An actor is one thread that waits for its turn. Two that stage at once would not wait for each other.
        stack.enter_context(patch("floodmark.sync.load.TABLES_AT_ONCE", 1))
        try:
            yield
        finally:
            close_sessions()


_BUILDERS = ("floodmark.postgres.warehouse.merge.build_merge", "floodmark.postgres.warehouse.merge.build_count")
"""The functions whose trees take half of the time of a small merge: the text depends on their argument alone."""


_STAGING = TableName(STAGING_SCHEMA, "staging_of_the_window")
_WINDOW_ID = 9_876_543_210


@dataclass(frozen=True)
class _Rendered:
    """A statement in place of its tree."""

    text: str

    def sql(self, dialect: str, *, copy: bool = True) -> str:
        return self.text


def _rendered_once(build: Callable[[Merge], exp.Expression]) -> Callable[[Merge], _Rendered]:
    """Return the function with a memory of its texts, in which only the window has to be filled in."""
    render = cache(lambda merge: str(build(merge).sql(dialect="postgres")))

    def rendered(merge: Merge) -> _Rendered:
        text = render(replace(merge, staging=_STAGING, window_id=_WINDOW_ID))
        return _Rendered(text.replace(_STAGING.name, merge.staging.name).replace(str(_WINDOW_ID), str(merge.window_id)))

    return rendered


def close_sessions() -> None:
    while _idle:
        session = _idle.pop()
        psycopg.Connection.close(session)


@dataclass
class FastWarehouse:
    """The databases of one process: one at a time, with the tables of an empty ledger at the start of each history."""

    postgres: EmbeddedPostgres
    name: str
    template: str
    _used: int = field(default=0, init=False)

    @property
    def connection(self) -> WarehouseConnection:
        return WarehouseConnection(str(self.postgres.socket_dir), 5432, self.name, "postgres")

    def begin(self) -> WarehouseConnection:
        """Return the database, with an empty ledger and no target."""
        if self._used % HISTORIES_PER_DATABASE == 0:
            self._make()
        else:
            session = take_session(self.connection.conninfo())
            session.execute(_EMPTY)
            session.close()
        self._used += 1
        return self.connection

    def _make(self) -> None:
        close_sessions()
        with psycopg.connect(self.postgres.conninfo(), autocommit=True) as session:
            session.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
            session.execute(f"CREATE DATABASE {self.name} TEMPLATE {self.template} STRATEGY file_copy")

    def drop(self) -> None:
        close_sessions()
        with psycopg.connect(self.postgres.conninfo(), autocommit=True) as session:
            session.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


def make_template(postgres: EmbeddedPostgres, name: str) -> None:
    """Make a database with the tables of the ledger."""
    with psycopg.connect(postgres.conninfo(), autocommit=True) as session:
        session.execute(f"DROP DATABASE IF EXISTS {name}")
        session.execute(f"CREATE DATABASE {name}")
    PostgresLedger(WarehouseConnection(str(postgres.socket_dir), 5432, name, "postgres")).ensure_schema()
    close_sessions()


# Ids begin at 1 again, so that a history is the same whichever came before it.
_EMPTY = """
DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT oid::regclass AS name FROM pg_class
        WHERE relnamespace = 'floodmark_staging'::regnamespace AND relkind = 'r'
    LOOP
        EXECUTE format('DROP TABLE %s', found.name);
    END LOOP;
    FOR found IN SELECT oid::regclass AS name FROM pg_class
        WHERE relnamespace = 'floodmark'::regnamespace AND relkind = 'r' AND relname <> 'ledger_version'
    LOOP
        EXECUTE format('DELETE FROM %s', found.name);
    END LOOP;
    FOR found IN SELECT oid::regclass AS name FROM pg_class
        WHERE relnamespace = 'floodmark'::regnamespace AND relkind = 'S'
    LOOP
        PERFORM setval(found.name, 1, false);
    END LOOP;
    DROP SCHEMA IF EXISTS shop, backup CASCADE;
END
$$
"""
