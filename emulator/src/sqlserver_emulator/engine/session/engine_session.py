"""One client's access to the databases: ``contract.EngineSession`` on a PostgreSQL connection.

Owns the path of a statement: translate, bind, run, type the result. DDL goes to ``engine.ddl``, results of queries to
``queries``, transactions to ``engine.connection.transaction``. @@TRANCOUNT, variables and control flow are the
interpreter's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import psycopg
from psycopg.pq.abc import PGresult

from sqlserver_emulator.collations import Collation
from sqlserver_emulator.contract import BulkTarget, DeclaredType, Parameter, StatementResult, Variables
from sqlserver_emulator.engine.access.identity import IdentityValues
from sqlserver_emulator.engine.access.session_access import SessionAccess
from sqlserver_emulator.engine.catalog import result_types
from sqlserver_emulator.engine.catalog.cache import Relation
from sqlserver_emulator.engine.connection.errors_map import VALUE_TOO_LONG, to_sql_server
from sqlserver_emulator.engine.connection.pipeline import StatementFailedError
from sqlserver_emulator.engine.connection.transaction import SavepointMissingError
from sqlserver_emulator.engine.ddl.programs.procedures import temporary_procedure
from sqlserver_emulator.engine.ddl.runner import DdlRunner, is_ddl
from sqlserver_emulator.engine.session.batch_check import check_tracked_tables
from sqlserver_emulator.engine.session.bulk import BulkLoader, PostgresBulkTarget, find_target
from sqlserver_emulator.engine.session.constraint_names import ConstraintLookup
from sqlserver_emulator.engine.session.deferred import DeferredUpdates
from sqlserver_emulator.engine.session.faults import StatementFaults
from sqlserver_emulator.engine.session.given_tables import given_table
from sqlserver_emulator.engine.session.queries import QueryResults
from sqlserver_emulator.engine.session.session_values import SessionValues
from sqlserver_emulator.engine.session.snapshot_access import SNAPSHOT, check_snapshot
from sqlserver_emulator.engine.session.triggers import SessionTriggers
from sqlserver_emulator.engine.session.truncation import truncation_error
from sqlserver_emulator.engine.translation import StatementTranslator, Translated
from sqlserver_emulator.engine.values import bind
from sqlserver_emulator.engine.values.convert import convert
from sqlserver_emulator.engine.values.rows import Row
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import ArrowBatch, Column, Command, Rows
from sqlserver_emulator.session import TableValue
from sqlserver_emulator.types import TsqlType

_ISOLATION = {
    # PostgreSQL has no dirty reads.
    "READ UNCOMMITTED": "READ COMMITTED",
    "READ COMMITTED": "READ COMMITTED",
    "REPEATABLE READ": "REPEATABLE READ",
    # PostgreSQL's REPEATABLE READ is snapshot isolation.
    SNAPSHOT: "REPEATABLE READ",
    "SERIALIZABLE": "SERIALIZABLE",
}
# A deadlock's victim and an update conflict: SQL Server rolls the whole transaction back, not the statement only.
_ENDS_TRANSACTION = (1205, 3960)
_T = TypeVar("_T")


class PostgresEngineSession:
    """``access``: the connection, catalog and row reader of this session."""

    def __init__(
        self,
        access: SessionAccess,
        translator: StatementTranslator,
        *,
        login: str,
        database: str,
        session_id: int,
        on_close: Callable[[], None],
        faults: StatementFaults | None = None,
    ) -> None:
        self.login = login
        self.database = database
        self._on_close = on_close
        self._faults = faults
        self._access = access
        self._connection = access.connection
        self._catalog = access.catalog
        self._translator = translator
        self._identity = IdentityValues(access)
        self.has_session_locks = False
        """Whether sp_getapplock may have left a lock that ends with the session."""
        self._ddl = DdlRunner(access, translator, self._identity)
        self._deferred = DeferredUpdates()
        self._bulk = BulkLoader(self, access, self._identity, self._deferred)
        self._names = ConstraintLookup(access)
        self._queries = QueryResults(access, self._errors)
        self.triggers = SessionTriggers(access)
        self.values = SessionValues(access.connection)
        self._connection.set_context("emulator.session_id", str(session_id))
        self._enter(database)

    def check_batch(self, text: str) -> None:
        with self._errors("SELECT"):
            check_tracked_tables(
                text, lambda name: self._catalog.table(name.database or self.database, name.schema or None, name.name)
            )

    # -- statements -------------------------------------------------------------------------------------------------

    def execute(self, statement: str, variables: Variables) -> StatementResult:
        # The connection has one result at a time, so an unread one ends here.
        self._queries.give_up()
        faults = self._faults
        # Faults are checked only while there are any: this is the path of every statement.
        if faults is None or not faults.are_active:
            return self._execute(statement, variables)
        with self._errors("SELECT"):
            faults.meet(statement, self.database, self._access.fetch)
        return faults.cut(self._execute(statement, variables), statement, self.database)

    def _execute(self, statement: str, variables: Variables) -> StatementResult:
        with self._errors("CREATE"):
            # DDL is recognised from the text before translation, which parses queries and DML only (ADR 4).
            result = self._ddl.run(statement, self.database, variables)
        if result is not None:
            return result
        return self._planned(lambda: self._translate_and_run(statement, variables))

    def _translate_and_run(self, statement: str, variables: Variables) -> StatementResult:
        with self._errors("SELECT"):
            translated = self._translate(statement, variables)
        with self._errors(translated.command.name):
            try:
                return self._run(translated, variables)
            except StatementFailedError as failure:
                # PostgreSQL's 22001 names no column; error 2628 does, so the column is searched in the catalog.
                if failure.sqlstate != VALUE_TOO_LONG:
                    raise
                values = self._values(translated, variables)
                raise truncation_error(failure.message, translated.sql, values, self._catalog) from failure

    def evaluate(self, expression: str, variables: Variables, as_type: TsqlType | None = None) -> object:
        value = self._planned(lambda: self._scalar(expression, variables, condition=False, as_type=as_type))
        return convert(value, as_type) if as_type is not None else value

    def evaluate_condition(self, condition: str, variables: Variables) -> bool:
        return bool(self._planned(lambda: self._scalar(condition, variables, condition=True, as_type=None)))

    def convert(self, value: object, to: TsqlType) -> object:
        return convert(value, to)

    def bulk_target(
        self, database: str, schema: str, table: str, columns: Sequence[str], options: frozenset[str]
    ) -> BulkTarget:
        with self._errors("INSERT"):
            return find_target(self._access, (database or self.database, schema, table), columns, options)

    def load_bulk(self, target: BulkTarget, types: Sequence[TsqlType], batches: Iterator[ArrowBatch]) -> int:
        assert isinstance(target, PostgresBulkTarget)  # noqa: S101 - it comes from bulk_target
        self._queries.give_up()
        self._connection.say_to_tracking()
        with self._errors("INSERT"):
            if self._faults is not None and self._faults.are_active:
                announced = f"INSERT BULK {target.table.schema}.{target.table.name}"
                self._faults.meet(announced, target.table.database, self._access.fetch)
            return self._bulk.load(target, types, batches)

    def describe(self, statement: str, variables: Variables) -> tuple[Column, ...] | None:
        self._queries.give_up()
        if is_ddl(statement):
            return None
        return self._planned(lambda: self._translate_and_describe(statement, variables))

    def _translate_and_describe(self, statement: str, variables: Variables) -> tuple[Column, ...] | None:
        with self._errors("SELECT"):
            translated = self._translate(statement, variables)
            if not translated.returns_rows or translated.assigned_variables:
                return None
            return self._queries.columns(self._connection.describe(translated.sql), translated)

    def undeclared_types(self, statement: str, variables: Variables) -> Mapping[str, TsqlType | None]:
        self._queries.give_up()
        with self._errors("SELECT"):
            return self._translator.undeclared_types(
                statement, catalog=self._catalog, database=self.database, variable_types=bind.VariableTypes(variables)
            )

    def fetch_all(self, postgres_sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        self._queries.give_up()
        with self._errors("SELECT"):
            return self._access.fetch(postgres_sql, parameters)

    def _translate(self, statement: str, variables: Variables) -> Translated:
        self._notice_catalog_changes()
        return self._translator.translate(
            statement,
            catalog=self._catalog,
            database=self.database,
            variable_types=bind.VariableTypes(variables),
        )

    def _scalar(self, expression: str, variables: Variables, *, condition: bool, as_type: TsqlType | None) -> object:
        self._queries.give_up()
        with self._errors("SELECT"):
            self._notice_catalog_changes()
            translated = self._translator.translate_expression(
                expression,
                catalog=self._catalog,
                database=self.database,
                variable_types=bind.VariableTypes(variables),
                condition=condition,
                as_type=as_type,
            )
            self._connection.limit_recursion(None)
            # Conditions and expressions have no OPTION clause of their own.
            values = self._parameters(translated, variables)
            result = self._connection.run(translated.sql, values, reads=True)
            rows = self._access.rows(result)
            return rows[0][0] if rows else None

    def _planned(self, run: Callable[[], _T]) -> _T:
        """``run`` translates and runs; once more when DDL elsewhere had made its prepared plan useless."""
        try:
            return run()
        except SqlServerError as error:
            failure = error.__cause__
            # Within ``atomic`` the failure took what came before with it.
            if not isinstance(failure, StatementFailedError) or not failure.is_stale_plan or self._connection.in_atomic:
                raise
        self._connection.pipeline.forget_prepared()
        self._access.catalog_changed()
        return run()

    def _run(self, translated: Translated, variables: Variables) -> StatementResult:
        if translated.databases and self._connection.level == SNAPSHOT:
            check_snapshot(translated.databases, self._catalog, self._connection)
        # Functions and views that the statement reads find the limit in a setting of the session.
        self._connection.limit_recursion(translated.max_recursion)
        said = (translated.tracking_context,) if translated.tracking_context else ()
        context = bind.parameter_values(said, variables, self._identity.variable)
        self._connection.say_to_tracking(translated.assigned_ids, *context)
        if translated.assigned_variables:
            return self._assign(translated, variables)
        if translated.command is Command.SELECT and translated.returns_rows:
            return self._queries.select(translated.as_sent(), self._values(translated, variables))
        return self._modify(translated, variables)

    def _assign(self, translated: Translated, variables: Variables) -> StatementResult:
        rows, _ = self._all_rows(translated, variables)
        # As in SQL Server, the last row's values stay in the variables.
        values = dict(zip(translated.assigned_variables, rows[-1], strict=True)) if rows else {}
        return StatementResult(translated.command, row_count=len(rows), assigned_variables=values)

    def _modify(self, translated: Translated, variables: Variables) -> StatementResult:
        self._identity.check(translated)
        # Changes that an earlier, failed statement announced must not fire triggers now.
        self.triggers.forget()
        self.triggers.assigned = translated.assigned_columns
        rows, result = self._all_rows(translated, variables)
        if self.triggers.has_changes and translated.returns_rows:
            # Only the run shows whether an enabled trigger was met, so the change is undone and the error raised after
            # it.
            self._connection.undo_statement()
            raise _output_with_triggers(self.triggers.take_changes()[0].table.name)
        count = result.command_tuples
        self._identity.note(translated, count or 0)
        if not translated.returns_rows:
            return StatementResult(translated.command, row_count=count)
        columns = self._queries.columns(result, translated)
        columns = result_types.with_scales(columns, result_types.unscaled_columns(result, columns), rows)
        return StatementResult(translated.command, columns, iter([Rows(rows)]), row_count=len(rows))

    def _all_rows(self, translated: Translated, variables: Variables) -> tuple[list[Row], PGresult]:
        values = self._parameters(translated, variables)
        before = self._deferred.messages(translated)
        reads = translated.command is Command.SELECT
        result = self._connection.run(translated.sql, values, reads=reads, before=before)
        # Outside a transaction the statement is committed: no other statement can follow its end mark.
        if self._connection.in_transaction:
            self._deferred.done(translated)
        return self._access.rows(result), result

    def _values(self, translated: Translated, variables: Variables) -> list[object]:
        return bind.parameter_values(translated.parameters, variables, self._identity.variable)

    def _parameters(self, translated: Translated, variables: Variables) -> list[bytes | None]:
        return bind.to_parameters(self._values(translated, variables))

    def _notice_catalog_changes(self) -> None:
        if self._catalog.shared_version != self._access.prepared_version:
            self._access.prepared_version = self._catalog.shared_version
            # Prepared plans may refer to tables whose definition has changed.
            self._connection.pipeline.forget_prepared()

    # -- transactions -----------------------------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def begin(self) -> None:
        self._queries.give_up()
        self._connection.begin()
        self._deferred.transaction_begins()

    def commit(self) -> None:
        self._queries.give_up()
        try:
            with self._errors("COMMIT"):
                self._connection.commit()
        except SqlServerError:
            # A failed COMMIT has ended the transaction, so the catalog is as it was before it.
            self._access.transaction_ended(committed=False)
            raise
        self._access.transaction_ended(committed=True)

    def rollback(self) -> None:
        self._queries.give_up()
        self._connection.rollback()
        self._access.transaction_ended(committed=False)

    def save(self, name: str) -> None:
        self._queries.give_up()
        with self._errors("SAVE"):
            self._connection.save(name)

    def rollback_to(self, name: str) -> None:
        self._queries.give_up()
        try:
            self._connection.rollback_to(name)
        except SavepointMissingError:
            message = f"Cannot roll back {name}. No transaction or savepoint of that name was found."
            raise SqlServerError(6401, message) from None
        self._access.rolled_back_to_savepoint()
        self._deferred.rolled_back_to_savepoint()

    def set_isolation(self, level: str) -> None:
        self._connection.isolation = _ISOLATION[level.upper()]
        self._connection.level = level.upper()

    def set_lock_timeout(self, milliseconds: int) -> None:
        # PostgreSQL spells "wait for ever" 0; T-SQL's 0 is "do not wait", the nearest of which is 1 ms.
        self._connection.set_context("lock_timeout", str(0 if milliseconds < 0 else max(milliseconds, 1)))

    def set_date_format(self, order: str) -> None:
        self._connection.set_context("emulator.date_format", order)

    @contextmanager
    def inner_scope(self) -> Iterator[None]:
        with self._catalog.table_variables(), self._identity.inner_scope():
            yield

    def atomic(self) -> AbstractContextManager[None]:
        self._queries.give_up()
        return self._access.atomic()

    def catalog_changed(self) -> None:
        self._access.catalog_changed()

    # -- what system procedures change ------------------------------------------------------------------------------

    def rename(self, name: str, new_name: str, kind: str) -> None:
        with self._errors("ALTER"):
            self._ddl.rename(name, new_name, kind, self.database)

    def change_role_member(self, role: str, member: str, *, adds: bool) -> None:
        with self._errors("ALTER"):
            self._ddl.change_role_member(role, member, self.database, adds=adds)

    # -- the session ------------------------------------------------------------------------------------------------

    @property
    def collation(self) -> Collation:
        return self._catalog.collation(self.database)

    def use(self, database: str) -> None:
        self._queries.give_up()
        entry = self._catalog.database_entry(database)
        if entry is None:
            message = f"Database '{database}' does not exist. Make sure that the name is entered correctly."
            raise SqlServerError(911, message)
        self._enter(entry.name)

    def _enter(self, database: str) -> None:
        self._access.enter(database)
        self.database = database
        self._connection.set_context("emulator.database", database)

    def caller_is(self, role: str) -> bool:
        return self._access.security.caller_is(role, self.database)

    def user_procedure(self, database: str, schema: str, name: str) -> str | None:
        if name.startswith("#"):
            return temporary_procedure(self.fetch_all, name)
        return self._catalog.procedure(database, schema, name)

    def function_parameters(self, schema: str, name: str) -> tuple[Parameter, ...] | None:
        return self._catalog.function_parameters(self.database, schema, name)

    def declared_type(self, schema: str, name: str) -> DeclaredType | None:
        found = self._catalog.declared_type(self.database, schema or None, name)
        return found.declared if found else None

    def table_variable(self, name: str) -> Relation | None:
        return self._catalog.temporary(name)

    def share_table(self, name: str, table: object) -> None:
        assert isinstance(table, Relation)  # noqa: S101 - it comes from table_variable
        self._catalog.share(name, table)

    def given_table(self, name: str, columns: str, value: TableValue) -> AbstractContextManager[None]:
        return given_table(self, self._access, self._identity, (name, columns), value)

    def cancel(self) -> None:
        self._connection.cancel()
        # A large result is read on the second connection, which this cancel has to reach as well.
        self._access.arrow.cancel()

    def reset(self) -> None:
        self.rollback()
        self._access.drop_temporary_objects()
        self.set_isolation("READ COMMITTED")
        self.set_lock_timeout(-1)
        self.set_date_format("mdy")
        self._identity.forget()
        self.values.forget()
        if self.has_session_locks:
            self.has_session_locks = False
            self.fetch_all("SELECT pg_advisory_unlock_all()")

    def close(self) -> None:
        self._queries.give_up()
        self._access.close()
        self._on_close()

    # -- errors -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except StatementFailedError as failure:
            error = to_sql_server(failure, self._names.within(self.database), verb)
            if error.number in _ENDS_TRANSACTION and self._connection.in_transaction:
                # PostgreSQL would have kept what preceded the guard's savepoint.
                self._connection.rollback()
                self._access.transaction_ended(committed=False)
            raise error from failure
        # PostgreSQL is gone: severity 21 means to a client that its connection is of no use.
        except psycopg.OperationalError as lost:
            message = "Cannot continue the execution because the session is in the kill state."
            raise SqlServerError(596, message, severity=21) from lost


def _output_with_triggers(table: str) -> SqlServerError:
    message = (
        f"The target table '{table}' of the DML statement cannot have any enabled triggers if the statement contains "
        "an OUTPUT clause without INTO clause."
    )
    return SqlServerError(334, message)
