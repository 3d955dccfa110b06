"""Shared parts of a session: its PostgreSQL connection, its view of the catalog, and the reading of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from psycopg import pq
from psycopg.pq.abc import PGresult

from sqlserver_emulator.engine.access.open_sessions import OpenSessions
from sqlserver_emulator.engine.access.security import SessionSecurity
from sqlserver_emulator.engine.access.table_variables import Remains, TableVariables
from sqlserver_emulator.engine.catalog.cache import Relation
from sqlserver_emulator.engine.catalog.session_catalog import SessionCatalog, SharedCatalog
from sqlserver_emulator.engine.connection.arrow_database import ArrowDatabase
from sqlserver_emulator.engine.connection.reader import ArrowReader
from sqlserver_emulator.engine.connection.transaction import TransactionalConnection
from sqlserver_emulator.engine.names import qualified
from sqlserver_emulator.engine.values import bind
from sqlserver_emulator.engine.values.rows import Row, RowReader
from sqlserver_emulator.types import TsqlType

_TEMPORARY_FUNCTIONS = "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = pg_my_temp_schema()"
"""What holds the text of #procedures."""


class SessionAccess:
    """Connection, catalog, rights and row reader of one session."""

    def __init__(
        self,
        connection: TransactionalConnection,
        arrow: ArrowDatabase,
        shared: SharedCatalog,
        *,
        login: str,
        own_types: Mapping[int, TsqlType],
        sessions: OpenSessions,
        session_id: int,
    ) -> None:
        self.connection = connection
        self.arrow = ArrowReader(arrow)
        self.own_types = own_types
        self._sessions = sessions
        self._session_id = session_id
        self._login = login
        self._rows = RowReader(self.connection.pipeline.psycopg, own_types)
        # A read-only session has a state of its own, so that no other session's catalog is right for it.
        self._shared = shared.own_of(self.fetch) if connection.is_read_only else shared
        self.catalog = SessionCatalog(self._shared, self.fetch)
        self.prepared_version = self.catalog.shared_version
        """The version of the catalog that prepared statements are of."""
        self.table_variables = TableVariables(self, self._take_remains())
        self.security = SessionSecurity(self, login)
        self.catalog.hidden.is_sysadmin = self.security.is_sysadmin
        self.was_in_transaction = False
        """Whether the running ``atomic`` is part of the client's transaction."""

    def _take_remains(self) -> dict[tuple[str, str, int, int], Relation]:
        """Return the tables that an earlier session has left; discard all that it has left if it is of no use."""
        pipeline = self.connection.pipeline
        remains, pipeline.remains = pipeline.remains, None
        if not isinstance(remains, Remains):
            return {}
        if (remains.login, remains.version) == (self._login, self.prepared_version):
            return remains.tables
        pipeline.discard()
        return {}

    def close(self) -> None:
        self.arrow.close()
        self.connection.close(self._remains())

    def _remains(self) -> Remains | None:
        # A #table of the same name may have other columns next time, and versions of a read-only catalog are its own.
        if self.catalog.has_made_temporary or self.catalog.temporary_tables or self.connection.is_read_only:
            return None
        left = {key: table for key, table in self.table_variables.left.items() if key[-1] == self.prepared_version}
        return Remains(self._login, self.prepared_version, left)

    def rows(self, result: PGresult) -> list[Row]:
        return self._rows.rows(result)

    def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """PostgreSQL SQL with the emulator's own rights, in the session's transaction."""
        with self.connection.as_owner():
            return self.rows(self.connection.run(sql, bind.to_parameters(parameters)))

    def fetch_committed(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Fetch what is committed: also where the session's own transaction has failed."""
        # An aborted transaction refuses every statement until its rollback.
        if self.connection.pipeline.transaction_status == pq.TransactionStatus.INERROR:
            return self._shared.fetch(sql, parameters)
        return self.fetch(sql, parameters)

    def enter(self, database: str) -> None:
        """Become the login's user in a database. Raises 916."""
        self.security.enter(database)
        self._sessions.enter(self._session_id, database)

    def others_in(self, database: str) -> list[int]:
        """Return the numbers of the other sessions whose current database this is."""
        return self._sessions.others_in(database, self._session_id)

    def end_others_in(self, database: str) -> None:
        """End the other sessions whose current database this is; their transactions are rolled back."""
        for number in self.others_in(database):
            self.fetch(
                "SELECT pg_terminate_backend(backend_pid) FROM emulator.sessions WHERE session_id = $1::int", [number]
            )
            # The number stays taken until its client has noticed.
            self._sessions.enter(number, "")

    def script(self, sql: str) -> None:
        """Several PostgreSQL statements without parameters or results."""
        with self.connection.as_owner():
            self.connection.script(sql)

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Everything inside succeeds or fails as one."""
        own = not self.connection.in_transaction
        # The outermost ``atomic`` decides: the inner ones always run inside its transaction.
        if not self.connection.in_atomic:
            self.was_in_transaction = not own
        try:
            with self.connection.atomic():
                yield
        except BaseException:
            if own:
                self.transaction_ended(committed=False)
            else:
                self.rolled_back_to_savepoint()
            raise
        if own:
            self.transaction_ended(committed=True)

    def catalog_changed(self) -> None:
        if self.connection.in_transaction:
            self.catalog.changed_in_transaction()
        else:
            self._shared.changed()

    def transaction_ended(self, *, committed: bool) -> None:
        self.catalog.transaction_ended(committed=committed)
        if not committed:
            self._forget_lost_temporary_tables()

    def rolled_back_to_savepoint(self) -> None:
        """DDL since the savepoint is undone: what was read of the catalog since may be wrong."""
        # Without own changes nothing that was read since the savepoint can be undone.
        if self.catalog.has_own_changes:
            self.catalog.changed_in_transaction()
        self._forget_lost_temporary_tables()

    def drop_temporary_objects(self) -> None:
        """Drop #tables and #procedures."""
        if self.catalog.has_made_temporary:
            for (function,) in self.fetch(_TEMPORARY_FUNCTIONS):
                self.script(f"DROP FUNCTION {function}")
        for table in self.catalog.temporary_tables:
            self.script(f"DROP TABLE IF EXISTS {qualified(table.postgres_schema, table.postgres_name)}")
            self.catalog.drop_temporary(table.name)

    def _forget_lost_temporary_tables(self) -> None:
        for table in self.catalog.temporary_tables:
            # Temp tables are created in the transaction, so a rollback may have dropped them.
            found = self.fetch("SELECT 1 FROM pg_class WHERE oid = $1::oid", [table.object_id])
            if not found:
                self.catalog.drop_temporary(table.name)
